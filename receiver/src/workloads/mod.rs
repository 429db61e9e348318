//! Whose a measurement is: cgroups, the workloads they belong to, and the slots that kernel and user space share. The one
//! place that knows workloads.

mod files;
mod live;
mod metadata;
mod registry;
mod resource;
mod runtime;
mod services;
mod slots;
mod status;
mod table;
mod workload;
mod young;

use std::sync::Arc;

pub use files::Files;
pub use metadata::{Metadata, PodMetadata};
pub use runtime::{Directory, Opener};
pub use status::{NAME, status};
pub use undercurrent_ebpf::abi::workload::Slot;
use undercurrent_ebpf::abi::workload::{OWNERS, OwnerCells, SOCKETS as SOCKET_ENTRIES};
pub use workload::{Stage, Workload};

use self::{live::Live, registry::Registry};
#[cfg(test)]
pub use crate::cgroup::testing;
pub use crate::cgroup::{
    Cgroup, CgroupId, CgroupPath, ContainerId, Hierarchy, Identity, Limits, Mounts, NoAccounting, NoQuotas, Origin,
    PodUid, Runtime, Scan, Uid, UsageError, Version, identify, netns_of, origin,
};
use crate::reader::Service;
use crate::{
    kernel::{
        Kernel, KernelError,
        hooks::{self, Hook},
        memory::PlannedMap,
        object::Ownership,
    },
    telemetry::{Attributes, Resource, ResourceMetrics, UnixNanos},
};

/// The hooks that say whose a measurement is.
#[must_use]
pub fn hooks(ownership: Ownership) -> Vec<&'static Hook> {
    match ownership {
        Ownership::Unified => vec![&hooks::SOCKET_READER, &hooks::CGROUP_CHANGE],
        Ownership::Cpu(_) => vec![&hooks::SOCKET_READER, &hooks::SOCKET_CREATOR, &hooks::CGROUP_CHANGE],
    }
}

/// Events that stand with the node although they may belong to a workload, or other knowledge that is missing: why, and
/// how often.
pub type Loss = (&'static str, u64);

/// The values of `undercurrent.reason` for these losses.
#[must_use]
pub fn loss_reasons() -> Vec<&'static str> {
    live::reasons()
}

/// Slots by cgroup and network namespace.
pub static OWNERS_MAP: PlannedMap =
    PlannedMap::new("OWNERS", size_of::<u64>(), |sizing| sizing.workloads.map_or(0, |_| OWNERS));
/// Slots that programs keep with sockets.
static SOCKETS: PlannedMap =
    PlannedMap::new("SOCKETS", size_of::<u64>(), |sizing| sizing.workloads.map_or(0, |_| SOCKET_ENTRIES));
/// Lookups without an answer, by CPU and reason.
static LOSSES: PlannedMap =
    PlannedMap::new("OWNER_LOSSES", size_of::<OwnerCells>(), |sizing| sizing.workloads.map_or(0, |_| sizing.cpus));
/// Changes of cgroups: a ring, of bytes.
static CGROUPS: PlannedMap = PlannedMap::new("CGROUPS", 1, |sizing| sizing.workloads.map_or(SMALLEST_RING, |_| RING));
/// Every map that attribution uses.
pub static MAPS: [&PlannedMap; 4] = [&OWNERS_MAP, &SOCKETS, &LOSSES, &CGROUPS];

/// Bytes of the ring of changes.
const RING: usize = 256 * 1024;
/// The smallest ring on every architecture's page size, in bytes.
const SMALLEST_RING: usize = 64 * 1024;

/// What is needed to follow workloads.
pub struct Following {
    /// The files about cgroups and processes.
    pub files: Files,
    /// Who knows containers.
    pub directory: Directory,
    /// What is said of this node.
    pub node: Attributes,
    /// The most workloads with slots of their own.
    pub limit: u16,
    /// Since when the node counts.
    pub start: UnixNanos,
}

/// Every workload on this node; none where nothing is told apart.
#[derive(Default)]
pub struct Workloads {
    registry: Registry,
    live: Option<Live>,
    start: UnixNanos,
}

impl Workloads {
    /// Follows every workload from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the programs' tables cannot be had.
    pub fn follow(kernel: &mut Kernel, following: Following) -> Result<Self, KernelError> {
        let Following { files, directory, node, limit, start } = following;
        let overflow = Arc::new(resource::overflow(&node));
        let mut registry = Registry::new(Box::new(kernel.words(&OWNERS_MAP)?), limit, overflow);
        let mut live = Live::new(kernel, files, directory, node)?;
        live.begin(&mut registry);
        Ok(Self { registry, live: Some(live), start })
    }

    /// Every workload whose cgroup is there, a parent's before its children's.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        let mut present: Vec<&Workload> =
            self.registry.iter().filter(|workload| workload.stage == Stage::Present).collect();
        present.sort_by(|one, other| one.path.cmp(&other.path));
        present.into_iter()
    }

    /// The cgroup that was made last of those that are there, workloads or not; `None` where none is known.
    #[must_use]
    pub fn newest(&self) -> Option<CgroupId> {
        self.registry.newest()
    }

    /// Every slot that has totals, but for the node's, and since when it counts.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos)> {
        let overflow = (self.registry.counts().folded > 0).then_some((Slot::OVERFLOW, self.start));
        let own = self.registry.iter().filter(|workload| workload.slot != Slot::OVERFLOW);
        overflow.into_iter().chain(own.map(|workload| (workload.slot, workload.start)))
    }

    /// Since when a slot counts; `None` of a slot that nobody has.
    #[must_use]
    pub fn start(&self, slot: Slot) -> Option<UnixNanos> {
        match slot {
            Slot::NODE | Slot::OVERFLOW => Some(self.start),
            slot => Some(self.registry.by_slot(slot)?.start),
        }
    }

    /// What is said of whoever has a slot; `None` of the node.
    #[must_use]
    pub fn resource(&self, slot: Slot) -> Option<Arc<Resource>> {
        match slot {
            Slot::NODE => None,
            Slot::OVERFLOW => self.live.as_ref().map(|_| self.registry.overflow()),
            slot => self.registry.by_slot(slot).map(|workload| Arc::clone(&workload.resource)),
        }
    }

    /// What could not be told apart, and since when that is counted.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.live.as_ref().map(|live| live.losses(&self.registry)).unwrap_or_default()
    }

    /// Waits for the next change, and takes it in. Never, where nothing is followed. Cancel safe.
    pub async fn changed(&mut self) {
        match &mut self.live {
            Some(live) => live.changed(&mut self.registry).await,
            None => std::future::pending().await,
        }
    }

    /// Before a snapshot: takes in what the kernel has told, and what outputs have delivered. Yields slots that are free
    /// again: everything that is kept for them must be cleared before the snapshot.
    pub fn before(&mut self, delivered: UnixNanos) -> Vec<Slot> {
        if let Some(live) = &mut self.live {
            live.catch_up(&mut self.registry);
        }
        // In this order: nothing is admitted between a slot's rest and its clearing, and a rest lasts from one tick to the
        // next.
        let rested = self.registry.rested();
        self.registry.delivered(delivered);
        rested
    }

    /// A snapshot of `time` is taken.
    pub fn after(&mut self, time: UnixNanos) {
        self.registry.taken(time);
        if let Some(live) = &mut self.live {
            live.renew();
        }
    }

    /// What a snapshot says of a slot: its totals, or, when they are delivered for the last time, that they are over.
    #[must_use]
    pub fn stage(&self, slot: Slot, metrics: ResourceMetrics) -> ResourceMetrics {
        match self.registry.by_slot(slot).map(|workload| workload.stage) {
            Some(Stage::Expiring(_)) => metrics.expired(),
            _ => metrics,
        }
    }

    /// These workloads, for tests.
    #[cfg(test)]
    pub fn of(workloads: Vec<Workload>) -> Self {
        let start = workloads.first().map_or(UnixNanos(0), |workload| workload.start);
        Self { registry: Registry::of(workloads), start, ..Self::default() }
    }
}
