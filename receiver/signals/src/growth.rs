//! The growth of the kernel's cgroup statistics between two readings.

use std::{collections::HashMap, time::Duration};

use crate::workloads::CgroupId;

/// The values of one reading.
#[derive(Debug, Default)]
pub struct Sums {
    /// The values of every readable cgroup.
    known: HashMap<CgroupId, Duration>,
    /// The highest id of a cgroup that existed at the reading.
    newest: Option<CgroupId>,
}

impl Sums {
    /// Returns the growth of a cgroup's value since the reading. Returns `None` if it is unknown.
    pub fn growth(&self, cgroup: CgroupId, now: Duration) -> Option<Duration> {
        let before = match self.known.get(&cgroup) {
            Some(before) => *before,
            // Cgroup ids increase. An id above all earlier ids belongs to a new cgroup, which started at zero.
            None if self.newest.is_some_and(|newest| cgroup > newest) => Duration::ZERO,
            // The cgroup existed before, but its earlier value is unknown. Counting all of `now` would count time
            // twice.
            None => return None,
        };
        // On cgroup v1, a privileged process can reset the CPU time of a cgroup.
        now.checked_sub(before)
    }

    /// Records the id of a cgroup that existed at the reading.
    pub fn knows(&mut self, cgroup: Option<CgroupId>) {
        self.newest = self.newest.max(cgroup);
    }

    /// Replaces the values. `None` marks cgroups that could not be read.
    pub fn keep(&mut self, sums: impl Iterator<Item = (CgroupId, Option<Duration>)> + Clone) {
        self.knows(sums.clone().map(|(cgroup, _)| cgroup).max());
        self.known = sums.filter_map(|(cgroup, sum)| Some((cgroup, sum?))).collect();
    }
}
