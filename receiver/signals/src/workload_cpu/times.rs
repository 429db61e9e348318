//! CPU times of the node and of every workload, which several signals share.

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use super::{
    super::ReadError,
    busy::Busy,
    ledger::{Ledger, Usage},
    stat,
    tasks::Tasks,
};
use crate::{
    telemetry::UnixNanos,
    workloads::{CgroupPath, Files, Slot, UsageError, Workload, Workloads},
};

/// CPU times that several signals read. The first of them in each snapshot reads the kernel's files.
pub type SharedCpuTimes = Rc<RefCell<CpuTimes>>;

/// CPU times of the node and of every workload.
pub struct CpuTimes {
    files: Files,
    tasks: Tasks,
    busy: Busy,
    ledger: Ledger,
    /// Failed readings, except readings of removed cgroups.
    unread: u64,
    /// True if the next signal has to read the times again.
    expired: bool,
}

impl CpuTimes {
    /// Starts with the current times as the baseline.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn new(files: Files, busy: Busy, workloads: &Workloads) -> Result<Self, ReadError> {
        let (tasks, ledger) = (Tasks::default(), Ledger::default());
        let mut times = Self { files, tasks, busy, ledger, unread: 0, expired: true };
        let (whole, usages) = times.usages(workloads)?;
        times.ledger = Ledger::new(whole, &usages, |slot| workloads.start(slot));
        // The root cgroup is the fallback if no workload exists yet.
        times.ledger.knows(workloads.newest());
        Ok(times)
    }

    /// Returns the times for several signals.
    pub fn shared(self) -> SharedCpuTimes {
        Rc::new(RefCell::new(self))
    }

    /// Begins a snapshot: the times of the last one are no longer valid.
    pub const fn expire(&mut self) {
        self.expired = true;
    }

    /// Reads the current times, unless another signal has read them in this snapshot.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn advance(&mut self, workloads: &Workloads) -> Result<(), ReadError> {
        if self.expired {
            let (whole, usages) = self.usages(workloads)?;
            self.ledger.advance(whole, &usages, |slot| workloads.start(slot));
            self.expired = false;
        }
        Ok(())
    }

    /// Returns the time of the node without workloads.
    pub const fn node(&self) -> Duration {
        self.ledger.node()
    }

    /// Returns the start time and the time of every workload.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos, Duration)> {
        self.ledger.slots()
    }

    /// Returns the stolen time of all CPUs.
    pub const fn steal(&self) -> Duration {
        self.busy.steal()
    }

    /// Returns the number of failed readings.
    pub const fn unread(&self) -> u64 {
        self.unread
    }

    /// Reads the CPU time of the node and of every workload. Reads children before parents and the node last, so that
    /// no child grows by more than its container.
    fn usages(&mut self, workloads: &Workloads) -> Result<(Duration, Vec<Usage>), ReadError> {
        let all = workloads.with_cpu_time();
        let outer = outer(&all);
        let cgroups: Vec<_> = all.iter().rev().map(|workload| (workload.cgroup, workload.path.clone())).collect();
        let times = self.files.usages(&cgroups).map_err(|source| ReadError { what: "cgroups", source })?;
        let mut usages: Vec<Usage> = Vec::with_capacity(all.len());
        for ((workload, within), time) in all.iter().zip(outer).zip(times.into_iter().rev()) {
            let time = self.time(workload, time);
            usages.push(Usage { slot: workload.slot, cgroup: workload.cgroup, within, time });
        }
        let tasks = self.tasks.read(&self.files).map_err(|source| ReadError { what: "cgroups", source })?;
        self.busy.read(tasks).map_err(|source| ReadError { what: stat::SOURCE, source })?;
        Ok((self.busy.total(), usages))
    }

    fn time(&mut self, workload: &Workload, read: Result<Duration, UsageError>) -> Option<Duration> {
        match read {
            Ok(time) => Some(time),
            Err(UsageError::Gone) => workload.last_cpu_time,
            Err(error) => {
                tracing::debug!(
                    "cannot read the CPU time of {}; it counts for the containing cgroup: {error}",
                    workload.path
                );
                self.unread += 1;
                None
            }
        }
    }
}

/// Returns the position of the nearest workload that contains each workload.
fn outer(workloads: &[&Workload]) -> Vec<Option<usize>> {
    let by_path: HashMap<&CgroupPath, usize> = workloads.iter().enumerate().map(|(n, of)| (&of.path, n)).collect();
    let nearest = |workload: &&Workload| {
        let above = (0..workload.path.names().count()).rev();
        above.map(|count| workload.path.ancestor(count)).find_map(|path| by_path.get(&path).copied())
    };
    workloads.iter().map(nearest).collect()
}
