//! Lookups of containers.

use crate::{CgroupPath, ContainerId, PodUid, Runtime, Uid};

const ROOT: Uid = Uid(0);

/// A lookup of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The container.
    pub container: ContainerId,
    /// The runtime, if known.
    pub runtime: Option<Runtime>,
    /// The pod in the path of the cgroup.
    pub pod: Option<PodUid>,
    /// The local user to whose sockets the lookup is restricted; `None` for the sockets of the system.
    pub user: Option<Uid>,
}

impl Lookup {
    /// Creates the lookup of a container with this cgroup path.
    #[must_use]
    pub fn new(container: ContainerId, runtime: Option<Runtime>, pod: Option<PodUid>, path: &CgroupPath) -> Self {
        Self { container, runtime, pod, user: user(path) }
    }

    /// Returns true if the result may apply to the cgroup of a path: both are in the subtree of one user, or both are
    /// outside of users' subtrees. A user may name a cgroup after any container, and a user's runtime may return any
    /// id.
    #[must_use]
    pub fn reaches(&self, path: &CgroupPath) -> bool {
        self.user == user(path)
    }
}

/// Returns the owner of the subtree of a path; `None` for the system. The slice of root's sessions counts as the system's,
/// because only root controls it.
fn user(path: &CgroupPath) -> Option<Uid> {
    path.user().filter(|user| *user != ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_reaches_its_own_subtree_alone() {
        let path = |text: &str| CgroupPath::new(text.as_bytes());
        let lookup = |text: &str| Lookup::new(ContainerId("x".to_owned()), None, None, &path(text));
        let subtrees = [
            (None, ["/docker/x", "/user.slice/user-0.slice/session-1.scope/libpod-payload-x"]),
            (Some(Uid(7)), ["/user.slice/user-7.slice/x", "/user.slice/user-7.slice/user.slice/user-8.slice/x"]),
            (Some(Uid(8)), ["/user.slice/user-8.slice/x", "/user.slice/user-8.slice/y"]),
        ];
        for (user, paths) in &subtrees {
            for one in paths {
                assert_eq!(lookup(one).user, *user, "{one}");
                for (other, others) in &subtrees {
                    assert!(others.iter().all(|path_of| lookup(one).reaches(&path(path_of)) == (user == other)));
                }
            }
        }
    }
}
