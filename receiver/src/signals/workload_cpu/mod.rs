//! `workload_cpu`: CPU time of workloads, read from the kernel's cgroup statistics. It needs no hook.

mod busy;
mod ledger;
mod source;
mod stat;
mod tasks;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

pub use self::source::source;
use self::{
    busy::Busy,
    ledger::{Ledger, Usage},
    tasks::Tasks,
};
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    internal::{LOST, lost},
};
use crate::{
    kernel::host::Host,
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{CgroupPath, Files, Hierarchy, NoAccounting, Slot, UsageError, Version, Workload, Workloads},
};

pub static ENTRY: Entry = Entry {
    name: "workload_cpu",
    summary: "CPU time of each workload without nested workloads; the remaining time counts for the node",
    metrics: &[&CPU_TIME, &STEAL_TIME],
    hooks: |_| Vec::new(),
    maps: &[],
    losses: |_| vec![READ_FAILED],
    hooks_needed: HooksNeeded::All,
    caveats: |_, kernel| caveats(kernel.host()),
    open,
};

pub(super) static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.time",
    unit: "s",
    description: "CPU time used, without the CPU time of nested workloads.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Section,
};

static STEAL_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.steal.time",
    unit: "s",
    description: "Time that the hypervisor took from this machine's CPUs.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Notice { normal: &[] },
};

fn hierarchy(host: &Host) -> Result<&Hierarchy, NoAccounting> {
    let hierarchy = host.hierarchy.as_ref().ok_or(NoAccounting::NotMounted)?;
    hierarchy.accounts().map(|()| hierarchy)
}

fn caveats(host: &Host) -> Vec<Caveat> {
    let hierarchy = match hierarchy(host) {
        Ok(hierarchy) => hierarchy,
        Err(nothing) => return vec![Caveat::Unavailable(nothing.to_string())],
    };
    let mut caveats: Vec<_> = hierarchy.partial().into_iter().map(Caveat::Partial).collect();
    if hierarchy.version() == Version::V1 {
        let reason = "on cgroup v1, processes without a cgroup of the controller `cpu` count for the node, for example \
                      systemd units without `CPUAccounting=yes`";
        caveats.push(Caveat::Partial(reason.to_owned()));
    }
    caveats
}

struct WorkloadCpu {
    files: Files,
    tasks: Tasks,
    busy: Busy,
    ledger: Ledger,
    /// Start time of the node's measurement.
    start: UnixNanos,
    /// Failed readings, except readings of removed cgroups.
    unread: u64,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    hierarchy(opening.kernel.host())?;
    let files = opening.files.ok_or(NoAccounting::NotMounted)?.clone();
    let busy = Busy::new(opening.kernel.task_clock().excludes_interrupts);
    Ok(Box::new(WorkloadCpu::new(files, busy, opening.workloads, opening.start)?))
}

impl WorkloadCpu {
    fn new(files: Files, busy: Busy, workloads: &Workloads, start: UnixNanos) -> Result<Self, ReadError> {
        let (tasks, ledger) = (Tasks::default(), Ledger::default());
        let mut signal = Self { files, tasks, busy, ledger, start, unread: 0 };
        let (whole, usages) = signal.usages(workloads)?;
        signal.ledger = Ledger::new(whole, &usages, |slot| workloads.start(slot));
        // The root cgroup is the fallback if no workload exists yet.
        signal.ledger.knows(workloads.newest());
        Ok(signal)
    }

    /// Reads the CPU time of the node and of every workload. Reads children before parents and the node last, so that
    /// no child grows by more than its container.
    fn usages(&mut self, workloads: &Workloads) -> Result<(Duration, Vec<Usage>), ReadError> {
        let all: Vec<&Workload> = workloads.iter().collect();
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
            Err(UsageError::Gone) => None,
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

impl Signal for WorkloadCpu {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let (whole, usages) = self.usages(workloads)?;
        self.ledger.advance(whole, &usages, |slot| workloads.start(slot));
        for (slot, start, time) in
            std::iter::once((Slot::NODE, self.start, self.ledger.node())).chain(self.ledger.slots())
        {
            let point = Point { attributes: Attributes::new(), start, data: Data::Double(time.as_secs_f64()) };
            readings.add(slot, Metric { descriptor: &CPU_TIME, points: vec![point] });
        }
        let steal = Data::Double(self.busy.steal().as_secs_f64());
        let steal = Point { attributes: Attributes::new(), start: self.start, data: steal };
        readings.add(Slot::NODE, Metric { descriptor: &STEAL_TIME, points: vec![steal] });
        let unread = lost(ENTRY.name, READ_FAILED, Attributes::new(), self.unread, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}
