//! Numbers of threads by cgroup.

use super::{
    Cgroup, Hierarchy, UsageError, Version,
    walk::{Limits, Queues, walk},
};
use crate::cgroup::{CgroupId, CgroupPath};

/// The maximum number of cgroups and of levels below a cgroup whose threads are counted one by one.
const BELOW: Limits = Limits { cgroups: 1024, depth: 64 };

impl Hierarchy {
    /// Returns the number of threads in a cgroup and its descendants: `pids.current` on version 2, if the controller `pids` is enabled; else
    /// the lines of `cgroup.threads`, or of `tasks` on version 1.
    ///
    /// # Errors
    /// [`UsageError`], with the conditions of [`Self::usage`].
    pub fn threads(&self, id: CgroupId, path: &CgroupPath) -> Result<u64, UsageError> {
        if self.version == Version::V2 {
            let count = |text: &str| text.trim_end().parse().ok();
            match self.count(Some(&self.tree), id, path, "pids.current", count) {
                Err(UsageError::NotKept) => {}
                counted => return counted,
            }
        }
        let own = self.listed(id, path)?;
        let directory = self.directory(path).map_err(|_| UsageError::Gone)?;
        let found = walk(directory, path.clone(), BELOW.depth, Queues::single(BELOW.cgroups));
        let below = found.map_err(|_| UsageError::Gone)?.cgroups.into_iter().skip(1);
        // A descendant that was removed meanwhile has no threads.
        let listed = |cgroup: Cgroup| match self.listed(cgroup.id, &cgroup.path) {
            Err(UsageError::Gone) => Ok(0),
            counted => counted,
        };
        below.map(listed).sum::<Result<u64, _>>().map(|below| own + below)
    }

    /// Returns the number of threads of a cgroup without its descendants.
    fn listed(&self, id: CgroupId, path: &CgroupPath) -> Result<u64, UsageError> {
        let name = if self.version == Version::V2 { "cgroup.threads" } else { "tasks" };
        self.count(Some(&self.tree), id, path, name, |text| Some(text.lines().count() as u64))
    }
}
