//! Attribution of measurements: cgroups, their workloads, and the slots that kernel and user space share.

use undercurrent_base::{causes, environment, node, privileges, text};
use undercurrent_host::cgroup;
use undercurrent_kernel as kernel;
use undercurrent_options as options;
use undercurrent_reader as reader;
use undercurrent_telemetry as telemetry;

mod files;
mod live;
mod metadata;
mod recent;
mod registry;
mod resource;
mod runtime;
mod services;
mod slots;
mod status;
mod table;
mod workload;

use std::sync::Arc;

pub use files::Files;
pub use metadata::{Metadata, PodMetadata};
pub use resource::ATTRIBUTES;
pub use runtime::{Directory, Runtimes};
pub use status::{NAME, status};
pub use undercurrent_ebpf::abi::workload::Slot;
use undercurrent_ebpf::abi::workload::{OWNERS, OwnerCells, SOCKETS as SOCKET_ENTRIES};
pub use workload::{Stage, Workload};

use self::{live::Live, registry::Registry};
#[cfg(any(test, feature = "testing"))]
pub use crate::cgroup::testing;
pub use crate::cgroup::{
    Cgroup, CgroupId, CgroupPath, ContainerId, Hierarchy, Identity, Limits, Mounts, NoAccounting, NoQuotas, Origin,
    PodUid, Runtime, Scan, Uid, UsageError, Version, identify, netns_of, origin,
};
use crate::reader::Service;
use crate::{
    cgroup::Ownership,
    kernel::{
        Kernel, KernelError,
        hooks::{self, Hook},
        memory::PlannedMap,
    },
    privileges::Task,
    telemetry::{Attributes, Resource, ResourceMetrics, UnixNanos},
};

/// Returns the hooks that attribution needs. `reader` is the hook at which a task becomes the owner of a socket.
#[must_use]
pub fn hooks(ownership: Ownership, reader: &'static Hook) -> Vec<&'static Hook> {
    match ownership {
        Ownership::Unified => vec![reader, &hooks::CGROUP_CHANGE],
        Ownership::Cpu(_) => vec![reader, &hooks::SOCKET_CREATOR, &hooks::CGROUP_CHANGE],
    }
}

/// The tasks of attribution that need capabilities.
pub const TASKS: [Task; 2] = [Task::InspectProcesses, Task::ReadProtectedFiles];

/// A reason and a number of losses: events that count with the node although they may belong to a workload, or missing
/// metadata.
pub type Loss = (&'static str, u64);

/// Returns the values of `undercurrent.reason` for these losses: all, or those that can occur with attached hooks.
#[must_use]
pub fn loss_reasons(kernel: Option<&Kernel>) -> Vec<&'static str> {
    live::reasons().into_iter().filter(|reason| kernel.is_none_or(|kernel| live::can_occur(reason, kernel))).collect()
}

/// Slots by cgroup and network namespace.
pub static OWNERS_MAP: PlannedMap =
    PlannedMap::new("OWNERS", size_of::<u64>(), |sizing| sizing.workloads.map_or(0, |_| OWNERS));
/// Slots that the eBPF programs cache for sockets.
static SOCKETS: PlannedMap =
    PlannedMap::new("SOCKETS", size_of::<u64>(), |sizing| sizing.workloads.map_or(0, |_| SOCKET_ENTRIES));
/// Failed lookups, by CPU and reason.
static LOSSES: PlannedMap =
    PlannedMap::by_cpu::<OwnerCells>("OWNER_LOSSES", |sizing| sizing.workloads.map_or(0, |_| sizing.cpus));
/// The ring of cgroup events, in bytes.
static CGROUPS: PlannedMap = PlannedMap::new("CGROUPS", 1, |sizing| sizing.workloads.map_or(SMALLEST_RING, |_| RING));
/// Every map that attribution uses.
pub static MAPS: [&PlannedMap; 4] = [&OWNERS_MAP, &SOCKETS, &LOSSES, &CGROUPS];

/// Size of the event ring, in bytes.
const RING: usize = 256 * 1024;
/// The smallest ring on every architecture's page size, in bytes.
const SMALLEST_RING: usize = 64 * 1024;

/// The inputs of [`Workloads::follow`].
pub struct Following {
    /// The files about cgroups and processes.
    pub files: Files,
    /// The lookup service for containers.
    pub directory: Directory,
    /// The resource attributes of the node.
    pub node: Attributes,
    /// The maximum number of workloads with a separate slot.
    pub limit: u16,
    /// The start time of the node's totals.
    pub start: UnixNanos,
}

/// The workloads of this node; empty if attribution is disabled.
#[derive(Default)]
pub struct Workloads {
    registry: Registry,
    live: Option<Live>,
    start: UnixNanos,
}

impl Workloads {
    /// Starts to follow all workloads. Needs a tokio runtime.
    ///
    /// # Errors
    /// If a map of the eBPF programs cannot be opened.
    pub fn follow(kernel: &mut Kernel, following: Following) -> Result<Self, KernelError> {
        let Following { files, directory, node, limit, start } = following;
        let overflow = Arc::new(resource::overflow(&node));
        let mut registry = Registry::new(Box::new(kernel.words(&OWNERS_MAP)?), limit, overflow);
        let mut live = Live::new(kernel, files, directory, node)?;
        live.scan_all(&mut registry);
        Ok(Self { registry, live: Some(live), start })
    }

    /// Returns every workload with an existing cgroup, in the order of the paths: parents come first.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        self.by_path(|workload| workload.stage == Stage::Present).into_iter()
    }

    /// Returns the workloads of [`Self::iter`] and those that were removed since the last snapshot and have a last CPU time.
    pub fn with_cpu_time(&self) -> Vec<&Workload> {
        self.by_path(|workload| match workload.stage {
            Stage::Present => true,
            Stage::Gone => workload.last_cpu_time.is_some(),
            Stage::Final(_) | Stage::Expiring(_) => false,
        })
    }

    fn by_path(&self, is_chosen: impl Fn(&Workload) -> bool) -> Vec<&Workload> {
        let mut chosen: Vec<&Workload> = self.registry.iter().filter(|workload| is_chosen(workload)).collect();
        chosen.sort_by(|one, other| one.path.cmp(&other.path));
        chosen
    }

    /// Returns the most recent existing cgroup, with or without a workload; `None` if no cgroup is known.
    #[must_use]
    pub fn newest(&self) -> Option<CgroupId> {
        self.registry.newest()
    }

    /// Returns every slot with totals except the node's, with the start time of its totals.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos)> {
        let overflow = (self.registry.counts().folded > 0).then_some((Slot::OVERFLOW, self.start));
        let own = self.registry.iter().filter(|workload| workload.slot != Slot::OVERFLOW);
        overflow.into_iter().chain(own.map(|workload| (workload.slot, workload.start)))
    }

    /// Returns the start time of a slot's totals; `None` if the slot is free.
    #[must_use]
    pub fn start(&self, slot: Slot) -> Option<UnixNanos> {
        match slot {
            Slot::NODE | Slot::OVERFLOW => Some(self.start),
            slot => Some(self.registry.by_slot(slot)?.start),
        }
    }

    /// Returns the resource of a slot; `None` for the node.
    #[must_use]
    pub fn resource(&self, slot: Slot) -> Option<Arc<Resource>> {
        match slot {
            Slot::NODE => None,
            Slot::OVERFLOW => self.live.as_ref().map(|_| self.registry.overflow()),
            slot => self.registry.by_slot(slot).map(|workload| Arc::clone(&workload.resource)),
        }
    }

    /// Returns the losses of attribution.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.live.as_ref().map(|live| live.losses(&self.registry)).unwrap_or_default()
    }

    /// Waits for the next change, and applies it. Pending forever if attribution is disabled. Cancel safe.
    pub async fn changed(&mut self) {
        match &mut self.live {
            Some(live) => live.changed(&mut self.registry).await,
            None => std::future::pending().await,
        }
    }

    /// Applies pending kernel events and deliveries before a snapshot. Returns the slots that became free: the caller
    /// must clear them before the snapshot.
    pub fn before(&mut self, delivered: UnixNanos) -> Vec<Slot> {
        if let Some(live) = &mut self.live {
            live.catch_up(&mut self.registry);
        }
        // The order matters: no workload may take a slot between its release and its clearing, and a slot rests from
        // one tick to the next.
        let rested = self.registry.rested();
        self.registry.delivered(delivered);
        rested
    }

    /// Records that the snapshot of `time` has been taken.
    pub fn after(&mut self, time: UnixNanos) {
        self.registry.taken(time);
        if let Some(live) = &mut self.live {
            live.renew();
        }
    }

    /// Marks the metrics of a slot as expired once its last totals have been delivered.
    #[must_use]
    pub fn stage(&self, slot: Slot, metrics: ResourceMetrics) -> ResourceMetrics {
        match self.registry.by_slot(slot).map(|workload| workload.stage) {
            Some(Stage::Expiring(_)) => metrics.expired(),
            _ => metrics,
        }
    }

    /// Creates a list of workloads for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn with(workloads: Vec<Workload>) -> Self {
        let start = workloads.first().map_or(UnixNanos(0), |workload| workload.start);
        Self { registry: Registry::with_workloads(workloads), start, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::workload::OwnerLoss;

    use super::*;

    #[test]
    fn losses_in_code_have_the_exported_names() {
        for (loss, reason) in OwnerLoss::ALL.into_iter().zip(live::reasons()) {
            assert_eq!(format!("{loss:?}").to_lowercase(), reason.replace('_', ""));
        }
    }
}
