//! The workload of a cgroup, derived from its path alone.
//!
//! Container runtimes encode the container id in the cgroup name. `fixtures/cgroups` lists the formats with their
//! sources. A similar name is rejected: any party with write access to a cgroup file system can create one.

mod container;
mod groups;
#[cfg(test)]
mod invariants;
mod pod;
mod subtree;
#[cfg(test)]
mod tests;
mod unit;

use std::fmt;

pub use subtree::{Origin, Subtree, origin};

use super::{CgroupPath, Uid, path::user_of_slice};

/// A container id as the runtime created it: 64 lower-case hexadecimal digits; 25 digits and lower-case letters for a
/// build step of an image; or the name in LXC or systemd-nspawn, which is unique only among siblings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(pub String);

/// A pod uid: a UUID, or 32 hexadecimal digits for a static pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub String);

impl PodUid {
    /// Returns true for the hash of a static pod's manifest. The API server does not use this uid.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.0.len() == 32
    }
}

/// A container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Docker Engine.
    Docker,
    /// containerd, used directly or by Kubernetes.
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

impl Runtime {
    /// Returns the value of `container.runtime.name`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Containerd => "containerd",
            Self::Crio => "cri-o",
            Self::Podman => "podman",
            Self::Lxc => "lxc",
            Self::Nspawn => "systemd-nspawn",
        }
    }

    /// Returns true if the runtime identifies containers by a user-chosen name, which is unique only among siblings.
    #[must_use]
    pub const fn identifies_by_name(self) -> bool {
        matches!(self, Self::Lxc | Self::Nspawn)
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The kind of a workload, with its identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// A container.
    Container {
        /// Container id.
        id: ContainerId,
        /// The runtime, if the path identifies it.
        runtime: Option<Runtime>,
        /// The pod of the container, or of the enclosing container.
        pod: Option<PodUid>,
    },
    /// A pod: resources shared by its containers.
    Pod(PodUid),
    /// A unit of the host's service manager, systemd.
    Unit(String),
    /// Another cgroup, identified by its path.
    Cgroup,
}

/// A kind and a name. The pair identifies a workload on its host.
pub type Instance<'a> = (&'static str, &'a [u8]);

impl Identity {
    /// Returns a kind and a name that are unique on the host and survive a restart. `path` is the path of the
    /// workload's own cgroup. Containers and pods of the system use their ids. All others use the path: container names
    /// repeat, and a cgroup name that a user, a container or a unit chose may contain any id.
    #[must_use]
    pub fn instance<'a>(&'a self, path: &'a CgroupPath) -> Instance<'a> {
        match self {
            Self::Container { .. } | Self::Pod(_) if origin(path) != Origin::System => by_path(path),
            Self::Container { id, runtime, .. } if !runtime.is_some_and(Runtime::identifies_by_name) => {
                ("container", id.0.as_bytes())
            }
            Self::Pod(uid) => ("pod", uid.0.as_bytes()),
            _ => by_path(path),
        }
    }
}

/// Returns the instance derived from a path. It is unique, because only one cgroup at a time has a path.
#[must_use]
pub fn by_path(path: &CgroupPath) -> Instance<'_> {
    ("cgroup", path.as_bytes())
}

/// Returns the workload of a cgroup, and the number of path components of the workload's own cgroup. `None` if the
/// cgroup belongs to the node.
///
/// The workload is the innermost container or pod. Otherwise it is the outermost systemd unit. Otherwise it is the
/// outermost directory that is neither a slice nor a group directory of a runtime.
#[must_use]
pub fn identify(path: &CgroupPath) -> Option<(Identity, usize)> {
    let walk = Walk::along(path, usize::MAX);
    walk.innermost.or(walk.outermost)
}

/// A walk over the names of a path, from the root.
#[derive(Default)]
struct Walk<'a> {
    /// The innermost container or pod.
    innermost: Option<(Identity, usize)>,
    /// The outermost unit or other directory. Names below it are ignored unless they identify a container.
    outermost: Option<(Identity, usize)>,
    /// The depth of the outermost container, in names.
    container: Option<usize>,
    /// The outermost delegation in the path.
    delegation: Option<Delegation>,
    pod: Option<PodUid>,
    /// True while all names so far are slices.
    slices: bool,
    above: Above<'a>,
}

/// The ancestors of a name, which determine its meaning.
#[derive(Clone, Copy, Default)]
struct Above<'a> {
    /// The names of the parent and the grandparent. `None` for the root, and for the own cgroup of a container or pod,
    /// because its name does not affect names below.
    names: [Option<&'a [u8]>; 2],
    /// True if the parent is the own cgroup of a pod.
    in_pod: bool,
    /// True if an ancestor is a unit, a pod or a container. Any party may create directories below.
    delegated: bool,
    /// The owner of the enclosing user's subtree.
    user: Option<User>,
}

/// The outermost cgroup that the system delegated to another party.
#[derive(Clone, Copy)]
enum Delegation {
    /// The slice of a user.
    User(Uid),
    /// The own cgroup of a container, with its depth.
    Container(usize),
}

/// The subtree of a user.
#[derive(Clone, Copy)]
struct User {
    uid: Uid,
    /// True below the user's service manager, which delegates cgroups to rootless runtimes.
    has_manager: bool,
}

impl<'a> Walk<'a> {
    /// Walks over the first `count` names of a path at most.
    fn along(path: &'a CgroupPath, count: usize) -> Self {
        let mut walk = Self { slices: true, ..Self::default() };
        for (name, depth) in path.names().take(count).zip(1..) {
            walk.enter(name, depth);
            // Kata Containers repeats the full path of the pod below `kata_overhead`, for virtual machine overhead
            // outside of the pod's limits.
            if depth == 1 && name == b"kata_overhead" {
                break;
            }
        }
        walk
    }

    fn enter(&mut self, name: &'a [u8], depth: usize) {
        let user = self.user(name);
        if let Some(User { uid, .. }) = user {
            self.delegation.get_or_insert(Delegation::User(uid));
        }
        if let Some(container) = container::named(name, self.above) {
            self.pod = container.pod.or_else(|| self.pod.take());
            let (id, runtime, pod) = (container.id, container.runtime, self.pod.clone());
            self.innermost = Some((Identity::Container { id, runtime, pod }, depth));
            self.container.get_or_insert(depth);
            self.delegation.get_or_insert(Delegation::Container(depth));
            self.above = Above { delegated: true, user, ..Above::default() };
        } else if let Some(uid) = pod::named(name, self.above) {
            self.pod = Some(uid.clone());
            self.innermost = Some((Identity::Pod(uid), depth));
            self.above = Above { in_pod: true, delegated: true, user, ..Above::default() };
        } else {
            if self.innermost.is_none() && self.outermost.is_none() {
                self.outermost = self.outer(name).map(|identity| (identity, depth));
            }
            self.above = Above {
                names: [Some(name), self.above.names[0]],
                in_pod: false,
                delegated: self.above.delegated || matches!(self.outermost, Some((Identity::Unit(_), _))),
                user,
            };
        }
    }

    /// Returns the owner of the user's subtree that contains the name or begins with it.
    fn user(&self, name: &[u8]) -> Option<User> {
        match self.above.user {
            Some(user) => Some(User { has_manager: user.has_manager || user.is_manager(name), ..user }),
            None if self.above.names[0] == Some(b"user.slice") => {
                user_of_slice(name).map(|uid| User { uid, has_manager: false })
            }
            None => None,
        }
    }

    /// Interprets a name without a workload above it. Returns `None` for a slice or a group directory of a runtime.
    fn outer(&mut self, name: &[u8]) -> Option<Identity> {
        if unit::is_slice(name) {
            return None;
        }
        if self.slices
            && let Some(unit) = unit::named(name)
        {
            return Some(Identity::Unit(unit));
        }
        self.slices = false;
        (!groups::contains(name, self.above.names)).then_some(Identity::Cgroup)
    }
}

impl User {
    /// Returns true for the name of the user's service manager, `user@N.service`.
    fn is_manager(self, name: &[u8]) -> bool {
        name == format!("user@{}.service", self.uid.0).as_bytes()
    }
}
