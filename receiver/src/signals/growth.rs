//! What the kernel's sums by cgroup grow by from one reading to the next.

use std::{collections::HashMap, time::Duration};

use crate::workloads::CgroupId;

/// The sums of one reading.
#[derive(Debug, Default)]
pub struct Sums {
    /// Of every cgroup that could be read.
    known: HashMap<CgroupId, Duration>,
    /// The latest cgroup that is known to have been there.
    newest: Option<CgroupId>,
}

impl Sums {
    /// How much a cgroup's sum has grown by until now; `None` where that cannot be told.
    pub fn growth(&self, cgroup: CgroupId, now: Duration) -> Option<Duration> {
        let before = match self.known.get(&cgroup) {
            Some(before) => *before,
            // Ids rise: one above all that were there before was made since, and began at zero.
            None if self.newest.is_some_and(|newest| cgroup > newest) => Duration::ZERO,
            // It was there, and what it had is counted already.
            None => return None,
        };
        // Version 1 lets anybody with the right set a cgroup's CPU time back to zero.
        now.checked_sub(before)
    }

    /// Knows of a cgroup that was there, whoever's.
    pub fn knows(&mut self, cgroup: Option<CgroupId>) {
        self.newest = self.newest.max(cgroup);
    }

    /// Goes on to these sums; `None` of cgroups that could not be read.
    pub fn keep(&mut self, sums: impl Iterator<Item = (CgroupId, Option<Duration>)> + Clone) {
        self.knows(sums.clone().map(|(cgroup, _)| cgroup).max());
        self.known = sums.filter_map(|(cgroup, sum)| Some((cgroup, sum?))).collect();
    }
}
