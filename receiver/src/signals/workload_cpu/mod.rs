//! `workload_cpu`: CPU time of workloads, read from the kernel's cgroup statistics. It needs no hook.

mod busy;
mod ledger;
mod source;
mod stat;
mod tasks;
#[cfg(test)]
mod tests;
mod times;

use self::busy::Busy;
pub use self::{
    source::source,
    times::{CpuTimes, SharedCpuTimes},
};
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    internal::{LOST, lost},
};
use crate::{
    kernel::host::Host,
    telemetry::{Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Hierarchy, NoAccounting, Slot, Version, Workloads},
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
    times: SharedCpuTimes,
    /// Start time of the node's measurement.
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    Ok(Box::new(WorkloadCpu::new(times(opening)?, opening.start)))
}

/// Returns the CPU times, which several signals share.
///
/// # Errors
/// If the kernel has no CPU time by cgroup, or it cannot be read.
pub fn times(opening: &OpenContext<'_>) -> Result<SharedCpuTimes, OpenError> {
    if let Some(times) = opening.cpu_times.get() {
        return Ok(times.clone());
    }
    hierarchy(opening.kernel.host())?;
    let files = opening.files.ok_or(NoAccounting::NotMounted)?.clone();
    let busy = Busy::new(opening.kernel.task_clock().excludes_interrupts);
    let times = CpuTimes::new(files, busy, opening.workloads)?.shared();
    Ok(opening.cpu_times.get_or_init(|| times).clone())
}

impl WorkloadCpu {
    const fn new(times: SharedCpuTimes, start: UnixNanos) -> Self {
        Self { times, start }
    }
}

impl Signal for WorkloadCpu {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let mut times = self.times.borrow_mut();
        times.advance(workloads)?;
        for (slot, start, time) in std::iter::once((Slot::NODE, self.start, times.node())).chain(times.slots()) {
            let point = Point { attributes: Attributes::new(), start, data: Data::Double(time.as_secs_f64()) };
            readings.add(slot, Metric { descriptor: &CPU_TIME, points: vec![point] });
        }
        let steal = Data::Double(times.steal().as_secs_f64());
        let steal = Point { attributes: Attributes::new(), start: self.start, data: steal };
        readings.add(Slot::NODE, Metric { descriptor: &STEAL_TIME, points: vec![steal] });
        let unread = lost(ENTRY.name, READ_FAILED, Attributes::new(), times.unread(), self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}
