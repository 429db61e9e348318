//! Runs and run times of eBPF programs, by the kernel's statistics.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
    time::Duration,
};

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

/// A measurement of how often the kernel enters the programs of a sidecar.
pub struct Entries {
    _statistics: OwnedFd,
    own: BTreeSet<u32>,
    before: BTreeMap<String, u64>,
}

impl Entries {
    /// Begins the measurement. `None` if the kernel has no statistics of programs (before 5.8).
    pub fn begin(sidecar: u32) -> Option<Self> {
        let statistics = enable_stats(Stats::RunTime).ok()?;
        let own: BTreeSet<u32> = attached(sidecar).programs.into_iter().collect();
        let before = entries(&own);
        Some(Self { _statistics: statistics, own, before })
    }

    /// Returns how often each program was entered, by the name that the kernel keeps.
    pub fn end(self) -> BTreeMap<String, u64> {
        let before = |name: &String| self.before.get(name).copied().unwrap_or_default();
        entries(&self.own).into_iter().map(|(name, count)| (name.clone(), count - before(&name))).collect()
    }
}

fn entries(own: &BTreeSet<u32>) -> BTreeMap<String, u64> {
    let mut entries = BTreeMap::new();
    for program in loaded_programs().filter_map(Result::ok).filter(|program| own.contains(&program.id())) {
        *entries.entry(program.name_as_str().unwrap_or_default().to_owned()).or_default() += program.run_count();
    }
    entries
}
