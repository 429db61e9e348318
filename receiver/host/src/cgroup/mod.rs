//! Cgroups: paths, hierarchies, and the workload identified by a path.

mod hierarchy;
mod identity;
mod memory;
mod path;
mod quotas;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use serde::{Deserialize, Serialize};

pub use hierarchy::{Cgroup, Hierarchy, Limits, Mounts, NoAccounting, NoQuotas, Scan, UsageError, Version, netns_of};
pub use identity::{ContainerId, Identity, Instance, Origin, PodUid, Runtime, Subtree, by_path, identify, origin};
pub use memory::MemoryLimit;
pub use path::{CgroupId, CgroupPath, Uid};
pub use quotas::Quotas;

/// The hierarchy that eBPF programs use to attribute sockets to cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// The cgroup v2 hierarchy.
    Unified,
    /// The cgroup v1 hierarchy of the cpu controller, with its number in `/proc/cgroups`.
    Cpu(i32),
}
