//! Whose a measurement is: cgroups, the workloads they belong to, and the slots that kernel and user space share. The one
//! place that knows workloads.

mod cgroup;
mod identity;
mod metadata;
mod registry;
mod slots;
mod table;

use std::sync::Arc;

pub use cgroup::{CgroupId, CgroupPath};
pub use identity::{ContainerId, Identity, PodUid, Runtime, identify};
pub use metadata::{Metadata, PodMetadata};
pub use undercurrent_ebpf::abi::workload::Slot;

use crate::{
    kernel::{
        hooks::{self, Hook},
        object::Ownership,
    },
    telemetry::{Resource, UnixNanos},
};

/// The hooks that say whose a measurement is.
#[must_use]
pub fn hooks(ownership: Ownership) -> Vec<&'static Hook> {
    match ownership {
        Ownership::Unified => vec![&hooks::SOCKET_READER, &hooks::CGROUP_CHANGE],
        Ownership::Cpu(_) => vec![&hooks::SOCKET_READER, &hooks::SOCKET_CREATOR, &hooks::CGROUP_CHANGE],
    }
}

/// A cgroup that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its id.
    pub id: CgroupId,
    /// Its path.
    pub path: CgroupPath,
}

/// How far a workload is. Its slot is free after the last stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its cgroup is there.
    Present,
    /// Its cgroup is no more, and no snapshot was taken since.
    Gone,
    /// The snapshot of this time has its last totals.
    Final(UnixNanos),
    /// Its last totals are delivered; the snapshot of this time says that there will be no more.
    Expiring(Option<UnixNanos>),
}

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
    /// How far it is.
    pub stage: Stage,
    /// The network namespace that it has to itself, or shares with those that came later.
    pub namespace: Option<u32>,
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
