//! The party that creates a cgroup, derived from the path. It determines which identities the name may claim and which
//! quota applies.

use super::{Delegation, Walk};
use crate::cgroup::{CgroupPath, Uid};

/// The party that may have named a cgroup. It decides which identities the name may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The service manager and the runtimes of the host, as root.
    System,
    /// A process in an enclosing unit, container or other workload.
    Delegated,
    /// The user who owns the subtree, or a process in a container of that user.
    User(Uid),
}

/// A part of the hierarchy whose cgroups one party creates. Quotas apply to subtrees.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subtree {
    /// The cgroups of the system below the top-level directory with this name. The root cgroup has an empty name.
    System(Vec<u8>),
    /// The slice of a user, and all cgroups below it.
    User(Uid),
    /// All cgroups below the own cgroup of a container, which has this path.
    Container(CgroupPath),
}

impl Subtree {
    /// Returns the subtree of a path. The outermost user's slice or container decides.
    #[must_use]
    pub fn containing(path: &CgroupPath) -> Self {
        match Walk::along(path, usize::MAX).delegation {
            Some(Delegation::User(uid)) => Self::User(uid),
            Some(Delegation::Container(depth)) if path.names().count() > depth => Self::Container(path.ancestor(depth)),
            _ => Self::System(path.names().next().unwrap_or_default().to_vec()),
        }
    }

    /// True if a party other than the system creates the cgroups.
    #[must_use]
    pub const fn is_delegated(&self) -> bool {
        !matches!(self, Self::System(_))
    }
}

/// Returns the party that may have named the cgroup of a path.
#[must_use]
pub fn origin(path: &CgroupPath) -> Origin {
    let parents = path.names().count().saturating_sub(1);
    match (path.user(), Walk::along(path, parents)) {
        (Some(uid), _) => Origin::User(uid),
        (None, walk) if walk.container.is_some() || walk.outermost.is_some() => Origin::Delegated,
        _ => Origin::System,
    }
}
