//! The run times of eBPF programs, by the kernel's statistics.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use aya::{
    programs::loaded_programs,
    sys::{Stats, enable_stats},
};

use super::attached::attached;

/// A measurement of the programs that run beside those of a sidecar.
pub struct OtherPrograms {
    _statistics: OwnedFd,
    before: BTreeMap<u32, Duration>,
}

impl OtherPrograms {
    /// Begins the measurement. `None` if the kernel has no statistics of programs (before 5.8).
    pub fn begin() -> Option<Self> {
        let statistics = enable_stats(Stats::RunTime).ok()?;
        Some(Self { _statistics: statistics, before: run_times() })
    }

    /// Returns the run time of the programs of other processes on all CPUs.
    pub fn end(self, sidecar: u32) -> Duration {
        let own = attached(sidecar).programs;
        let others = run_times().into_iter().filter(|(id, _)| !own.contains(id));
        others.map(|(id, time)| time.saturating_sub(self.before.get(&id).copied().unwrap_or_default())).sum()
    }
}

fn run_times() -> BTreeMap<u32, Duration> {
    loaded_programs().filter_map(|program| program.ok().map(|program| (program.id(), program.run_time()))).collect()
}
