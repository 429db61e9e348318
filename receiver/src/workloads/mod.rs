//! Whose a measurement is: cgroups, the workloads they belong to, and the slots that kernel and user space share. The one
//! place that knows workloads.

mod cgroup;
mod environ;
pub mod hierarchy;
mod identity;
mod live;
mod metadata;
mod registry;
mod resource;
mod runtime;
mod slots;
mod table;
mod workload;
mod young;

use std::sync::Arc;

pub use cgroup::{CgroupId, CgroupPath};
pub use hierarchy::{Cgroup, Hierarchy};
pub use identity::{ContainerId, Identity, PodUid, Runtime, identify};
pub use metadata::{Metadata, PodMetadata};
pub use runtime::Directory;
pub use undercurrent_ebpf::abi::workload::Slot;
pub use workload::{Stage, Workload};

use self::live::{Live, Sources};
use crate::{
    kernel::{
        Kernel, KernelError,
        hooks::{self, Hook},
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

/// Every workload on this node; none where nothing is told apart.
#[derive(Default)]
pub struct Workloads {
    live: Option<Live>,
    start: UnixNanos,
}

impl Workloads {
    /// Follows every workload from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where the programs' tables cannot be had.
    pub fn follow(
        kernel: &mut Kernel,
        hierarchy: Hierarchy,
        directory: Directory,
        node: Attributes,
        (limit, start): (u16, UnixNanos),
    ) -> Result<Self, KernelError> {
        let told = kernel.serves(&hooks::CGROUP_CHANGE);
        let sources = Sources {
            owners: kernel.words("OWNERS")?,
            losses: kernel.by_cpu("OWNER_LOSSES")?,
            changes: if told { Some(kernel.ring("CGROUPS")?) } else { None },
            hierarchy,
            directory,
            node,
            limit,
        };
        Ok(Self { live: Some(Live::start(sources, start)), start })
    }

    /// Every workload whose cgroup is there, a parent's before its children's.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        let all = self.live.iter().flat_map(|live| live.registry().iter());
        let mut present: Vec<&Workload> = all.filter(|workload| workload.stage == Stage::Present).collect();
        present.sort_by(|one, other| one.path.cmp(&other.path));
        present.into_iter()
    }

    /// Every slot that has totals, and since when it counts.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos)> {
        let overflow = self.live.iter().filter(|live| live.registry().counts().folded > 0);
        let overflow = overflow.map(|_| (Slot::OVERFLOW, self.start));
        let own = self.live.iter().flat_map(|live| live.registry().iter());
        overflow.chain(own.filter(|workload| workload.slot != Slot::OVERFLOW).map(|one| (one.slot, one.start)))
    }

    /// Since when a slot counts; `None` of a slot that nobody has.
    #[must_use]
    pub fn start(&self, slot: Slot) -> Option<UnixNanos> {
        match slot {
            Slot::NODE | Slot::OVERFLOW => Some(self.start),
            slot => Some(self.live.as_ref()?.registry().by_slot(slot)?.start),
        }
    }

    /// Where cgroups are, where workloads are followed.
    #[must_use]
    pub fn hierarchy(&self) -> Option<&Hierarchy> {
        self.live.as_ref().map(Live::hierarchy)
    }

    /// What is said of whoever has a slot; `None` of the node.
    #[must_use]
    pub fn resource(&self, slot: Slot) -> Option<Arc<Resource>> {
        let live = self.live.as_ref()?;
        match slot {
            Slot::NODE => None,
            Slot::OVERFLOW => Some(Arc::new(resource::overflow(live.node()))),
            slot => live.registry().by_slot(slot).map(|workload| Arc::clone(&workload.resource)),
        }
    }

    /// What could not be told apart.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.live.as_ref().map(Live::losses).unwrap_or_default()
    }

    /// Waits for the next change, and takes it in. Never, where nothing is followed. Cancel safe.
    pub async fn changed(&mut self) {
        match &mut self.live {
            Some(live) => live.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Before a snapshot: takes in what the kernel has told, and what outputs have delivered. Yields slots that are free
    /// again: everything that is kept for them must be cleared before the snapshot.
    pub fn before(&mut self, delivered: UnixNanos) -> Vec<Slot> {
        let Some(live) = &mut self.live else { return Vec::new() };
        live.catch_up();
        // In this order: nothing is admitted between a slot's rest and its clearing, and a rest lasts from one tick to the
        // next.
        let rested = live.registry_mut().rested();
        live.registry_mut().delivered(delivered);
        rested
    }

    /// A snapshot of `time` is taken.
    pub fn after(&mut self, time: UnixNanos) {
        if let Some(live) = &mut self.live {
            live.registry_mut().taken(time);
        }
    }

    /// What a snapshot says of a slot: its totals, or, when they are delivered for the last time, that they are over.
    #[must_use]
    pub fn stage(&self, slot: Slot, metrics: ResourceMetrics) -> ResourceMetrics {
        let workload = self.live.as_ref().and_then(|live| live.registry().by_slot(slot));
        match workload.map(|workload| workload.stage) {
            Some(Stage::Expiring(_)) => metrics.expired(),
            _ => metrics,
        }
    }
}
