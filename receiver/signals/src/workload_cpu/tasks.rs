//! Run time of all tasks of the node, by the scheduler's own account.
//!
//! The scheduler adds up `rq_clock_task` while a task runs (`update_curr` in kernel/sched/fair.c). That clock leaves out stolen
//! time on kernels with `CONFIG_PARAVIRT_TIME_ACCOUNTING`, and interrupts on kernels with `CONFIG_IRQ_TIME_ACCOUNTING`
//! (`update_rq_clock_task` in kernel/sched/core.c, Linux 5.10 to 6.18). On other kernels both count for the interrupted task.
//! Interrupts on an idle CPU belong to no task.
//!
//! `rq_cpu_time`, field 7 of `/proc/schedstat`, is less exact. It adds up `rq_clock`, which passes in stolen time too, and
//! grows only when a task leaves its CPU (`sched_info_depart` in kernel/sched/stats.h, Linux 5.10 to 6.18).

use std::{collections::HashMap, io, time::Duration};

use super::super::growth::Sums;
use crate::workloads::{Files, Limits, UsageError, Version};

/// The most cgroups that are read on the first level.
const CGROUPS: usize = 1024;

/// Run time since the previous reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Run time of the tasks that could be read.
    pub time: Duration,
    /// True if these are all tasks of the node, except threads of the root cgroup that ended since.
    pub complete: bool,
}

/// Reads the run time of all tasks: `cpuacct.usage` of the root cgroup on version 1; on version 2, `cpu.stat` of each cgroup on
/// the first level, and the root cgroup's threads.
#[derive(Debug, Default)]
pub struct Tasks {
    cgroups: Sums,
    threads: HashMap<u32, Duration>,
}

impl Tasks {
    /// Returns the growth since the previous reading, or zero at the first reading.
    ///
    /// # Errors
    /// If the cgroups cannot be listed, or the reader does not respond.
    pub fn read(&mut self, files: &Files) -> io::Result<Growth> {
        let hierarchy = files.hierarchy();
        let whole = hierarchy.partial().is_none();
        // The root cgroup of version 2 counts by timer ticks. Any other cgroup is exact, with everything below it.
        let by_threads = whole && hierarchy.version() == Version::V2;
        let scan = files.scan(Limits { cgroups: CGROUPS, depth: usize::from(by_threads) })?;
        let cgroups: Vec<_> = scan.cgroups.into_iter().skip(usize::from(by_threads)).collect();
        let places: Vec<_> = cgroups.iter().map(|cgroup| (cgroup.id, cgroup.path.clone())).collect();
        let usages = files.usages(&places)?;
        let mut growth =
            Growth { complete: whole && scan.unreadable == 0 && cgroups.len() < CGROUPS, ..Growth::default() };
        let mut sums = Vec::with_capacity(cgroups.len());
        for (cgroup, usage) in cgroups.iter().zip(usages) {
            growth.complete &= matches!(usage, Ok(_) | Err(UsageError::Gone));
            let usage = usage.ok();
            growth.time += usage.and_then(|usage| self.cgroups.growth(cgroup.id, usage)).unwrap_or_default();
            sums.push((cgroup.id, usage));
        }
        self.cgroups.keep(sums.into_iter());
        if by_threads {
            match files.root_threads() {
                Ok(threads) => growth.time += self.threads(threads),
                Err(error) => {
                    tracing::debug!("cannot read the run time of the root cgroup's threads: {error}");
                    growth.complete = false;
                }
            }
        }
        Ok(growth)
    }

    /// Returns the growth of the threads that existed before. A new thread may have moved from another cgroup with its
    /// run time.
    fn threads(&mut self, threads: Vec<(u32, Duration)>) -> Duration {
        let before = std::mem::replace(&mut self.threads, threads.into_iter().collect());
        let growth = |(thread, now): (&u32, &Duration)| before.get(thread).map(|before| now.saturating_sub(*before));
        self.threads.iter().filter_map(growth).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_from_their_first_reading_and_never_backwards() {
        let (mut tasks, ms) = (Tasks::default(), Duration::from_millis);
        assert_eq!(tasks.threads(vec![(2, ms(500)), (9, ms(70))]), Duration::ZERO);
        assert_eq!(tasks.threads(vec![(2, ms(520)), (9, ms(71)), (30, ms(9000))]), ms(21));
        // Thread 9 has ended, and another thread has its id.
        assert_eq!(tasks.threads(vec![(2, ms(530)), (9, ms(1)), (30, ms(9004))]), ms(14));
    }
}
