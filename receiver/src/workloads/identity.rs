//! What a cgroup belongs to, from its path alone.

use super::CgroupPath;

/// A container's id, as its runtime made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(pub String);

/// A pod's uid: a UUID, or for static pods 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub String);

/// A container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Docker Engine.
    Docker,
    /// containerd, by its own clients or Kubernetes.
    Containerd,
    /// CRI-O.
    Crio,
    /// Podman.
    Podman,
    /// LXC and LXD.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
}

/// What a workload is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// A container.
    Container {
        /// Its id.
        id: ContainerId,
        /// The runtime, where the path tells.
        runtime: Option<Runtime>,
        /// The pod that it is part of.
        pod: Option<PodUid>,
    },
    /// A pod: what its containers share.
    Pod(PodUid),
    /// A unit of the host's systemd.
    Unit(String),
    /// Something else, known by its path.
    Cgroup,
}

/// The workload that a cgroup belongs to, and how many of its path's names lead to that workload's own cgroup; `None`
/// where it belongs to the node alone.
#[must_use]
pub fn identify(path: &CgroupPath) -> Option<(Identity, usize)> {
    path.names().next().map(|_| (Identity::Cgroup, 1))
}
