//! Whose a measurement is: cgroups, the workloads they belong to, and the slots that kernel and user space share. The one
//! place that knows workloads.

mod cgroup;
mod identity;
mod metadata;
pub mod runtime;

use std::sync::Arc;

pub use cgroup::{CgroupId, CgroupPath};
pub use identity::{ContainerId, Identity, PodUid, Runtime, identify};
pub use metadata::{Metadata, PodMetadata};
pub use undercurrent_ebpf::abi::workload::Slot;

use crate::telemetry::{Resource, UnixNanos};

/// Something that measurements belong to, and that is not the node as a whole.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its place; [`Slot::OVERFLOW`] where it has none of its own.
    pub slot: Slot,
    /// What it is.
    pub identity: Identity,
    /// Its own cgroup: everything below belongs to it too, but for other workloads.
    pub cgroup: CgroupId,
    /// That cgroup's path.
    pub path: CgroupPath,
    /// Since when it is followed.
    pub start: UnixNanos,
    /// What is said of it.
    pub resource: Arc<Resource>,
}

/// Every workload on this node.
#[derive(Debug, Default)]
pub struct Workloads {
    all: Vec<Workload>,
}

impl Workloads {
    /// Every workload whose cgroup is there, a parent's before its children's.
    pub fn iter(&self) -> impl Iterator<Item = &Workload> {
        self.all.iter()
    }

    /// Since when a slot counts; `None` of a slot that nobody has.
    #[must_use]
    pub fn start(&self, slot: Slot) -> Option<UnixNanos> {
        self.all.iter().find(|workload| workload.slot == slot).map(|workload| workload.start)
    }
}
