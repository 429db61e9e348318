//! What a cgroup belongs to, from its path alone.
//!
//! Runtimes say so in the names that they give cgroups; which ones is written down, with its sources, in
//! `fixtures/cgroups`. A name that only resembles a container's is none: whoever may write to a cgroup file system may
//! make such names.

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

/// A container's id, as its runtime made it: 64 lower-case hexadecimal digits, 25 digits and lower-case letters of a step
/// of an image's build, or the name that LXC or systemd-nspawn knows it by, which is unique only among its siblings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(pub String);

/// A pod's uid: a UUID, or for static pods 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub String);

impl PodUid {
    /// Whether it is the hash of a static pod's manifest, which the API server does not know.
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

impl Runtime {
    /// Its name, as `container.runtime.name` has it.
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

    /// Whether its containers are known by a name that people chose, and that is unique only among its siblings.
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

/// What a workload is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// A container.
    Container {
        /// Its id.
        id: ContainerId,
        /// The runtime, where the path tells.
        runtime: Option<Runtime>,
        /// The pod that it is part of, or that the container around it is part of.
        pod: Option<PodUid>,
    },
    /// A pod: what its containers share.
    Pod(PodUid),
    /// A unit of the host's systemd.
    Unit(String),
    /// Something else, known by its path.
    Cgroup,
}

/// A kind and a name. The pair identifies a workload on its host.
pub type Instance<'a> = (&'static str, &'a [u8]);

impl Identity {
    /// Returns a kind and a name that are unique on the host and survive a restart. `path` is that of the workload's own
    /// cgroup. Containers and pods of the system use their ids. All others use the path: containers known by a name, because
    /// names repeat; and cgroups that a user, a container or a unit named, because such a name may contain any id.
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

/// The instance made of a path: unique, because cgroups at one path exist one after the other.
#[must_use]
pub fn by_path(path: &CgroupPath) -> Instance<'_> {
    ("cgroup", path.as_bytes())
}

/// The workload that a cgroup belongs to, and how many of its path's names lead to that workload's own cgroup; `None`
/// where it belongs to the node alone.
///
/// That is the innermost container or pod; else the outermost unit of systemd or, without one, the outermost directory
/// that is neither a slice nor made by a runtime to group its containers.
#[must_use]
pub fn identify(path: &CgroupPath) -> Option<(Identity, usize)> {
    let walk = Walk::along(path, usize::MAX);
    walk.innermost.or(walk.outermost)
}

/// A path read from its root, name by name.
#[derive(Default)]
struct Walk<'a> {
    /// The innermost container or pod.
    innermost: Option<(Identity, usize)>,
    /// The outermost unit or other directory: nothing below it tells more, unless it is a container's.
    outermost: Option<(Identity, usize)>,
    /// How many names lead to the outermost container.
    container: Option<usize>,
    /// The outermost delegation on the way.
    delegation: Option<Delegation>,
    pod: Option<PodUid>,
    /// Whether all names so far are slices.
    slices: bool,
    above: Above<'a>,
}

/// What stands above a name and decides what it means.
#[derive(Clone, Copy, Default)]
struct Above<'a> {
    /// The parent's name and its parent's; `None` of the root, and of a container's or pod's own cgroup, whose name says
    /// nothing of what is below it.
    names: [Option<&'a [u8]>; 2],
    /// Whether the parent is a pod's own cgroup.
    in_pod: bool,
    /// Whether a unit, a pod or a container is above: from there on, directories belong to anybody.
    delegated: bool,
    /// The owner of the enclosing user's subtree.
    user: Option<User>,
}

/// The outermost cgroup that the system delegated to another party.
#[derive(Clone, Copy)]
enum Delegation {
    /// A user's slice.
    User(Uid),
    /// The own cgroup of a container, so many names deep.
    Container(usize),
}

/// A user's subtree.
#[derive(Clone, Copy)]
struct User {
    uid: Uid,
    /// True below the user's service manager, which delegates cgroups to rootless runtimes.
    has_manager: bool,
}

impl<'a> Walk<'a> {
    /// Reads at most the first `count` names of a path.
    fn along(path: &'a CgroupPath, count: usize) -> Self {
        let mut walk = Self { slices: true, ..Self::default() };
        for (name, depth) in path.names().take(count).zip(1..) {
            walk.enter(name, depth);
            // Kata repeats the pod's whole path below it, for what of its virtual machine the pod's limits leave out.
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

    /// The owner of the user's subtree that contains the name or begins with it.
    fn user(&self, name: &[u8]) -> Option<User> {
        match self.above.user {
            Some(user) => Some(User { has_manager: user.has_manager || user.is_manager(name), ..user }),
            None if self.above.names[0] == Some(b"user.slice") => {
                user_of_slice(name).map(|uid| User { uid, has_manager: false })
            }
            None => None,
        }
    }

    /// What a name means where nothing above it is a workload: nothing, of a slice or a runtime's group.
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
    /// True for the name of the user's service manager, `user@N.service`.
    fn is_manager(self, name: &[u8]) -> bool {
        name == format!("user@{}.service", self.uid.0).as_bytes()
    }
}
