//! `workload_cpu`: CPU time of workloads, read from the kernel's cgroup statistics. It needs no hook.

mod busy;
mod ledger;
mod parts;
mod source;
pub mod stat;
mod tasks;
#[cfg(test)]
mod tests;
mod times;
mod uses;

use std::time::Duration;

#[cfg(test)]
pub use self::uses::testing;
use self::{busy::Busy, parts::Parts};
pub use self::{
    source::source,
    times::{CpuTimes, SharedCpuTimes},
    uses::{SlotTimes, Times, Uses, uses},
};
use super::{
    Caveat, Entry, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    lost::{LOST, lost},
    processor,
};
use crate::{
    kernel::{constant::Constant, host::Host},
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Hierarchy, NoAccounting, Slot, Version, Workloads},
};

pub static ENTRY: Entry = Entry {
    maps: &[&processor::USE],
    constants: |on| vec![Constant::flag("signal.workload_cpu", on.settings.workload_cpu.enabled)],
    losses: |_| vec![READ_FAILED],
    caveats: |_, kernel| caveats(kernel.host()),
    ..Entry::new(
        "workload_cpu",
        "CPU time of each workload without nested workloads, with the part of network events; the remaining time counts for the node",
        &[&CPU_TIME, &STEAL_TIME],
        open,
    )
};

const USE: &str = "undercurrent.cpu.use";
const NETWORK: &str = "network";
const COMPUTE: &str = "compute";

pub(super) static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.time",
    unit: "s",
    description: "CPU time used, without the CPU time of nested workloads. Softirq time belongs to the receivers of the packets.",
    instrument: Instrument::Counter,
    attributes: &[AttributeKey::listed(USE, &[NETWORK, COMPUTE])],
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
    /// The division by use; `None` if the time of network events is not measured.
    division: Option<Division>,
    /// Start time of the node's measurement.
    start: UnixNanos,
}

/// The division of CPU time by use.
struct Division {
    times: SlotTimes,
    parts: Parts,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let mut times = SlotTimes::open(opening)?;
    let accounted = times.accounted().clone();
    let division = if times.measures_network() {
        times.advance(opening.workloads)?;
        Some(Division { times, parts: Parts::default() })
    } else {
        None
    };
    Ok(Box::new(WorkloadCpu::new(accounted, division, opening.start)))
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
    const fn new(times: SharedCpuTimes, division: Option<Division>, start: UnixNanos) -> Self {
        Self { times, division, start }
    }

    /// Returns the points of a slot with this time by the kernel's accounting. Workloads have no points of `network` with zero.
    fn points(&self, slot: Slot, start: UnixNanos, accounted: Duration) -> Vec<Point> {
        let point = |attributes, time: Duration| Point { attributes, start, data: Data::Double(time.as_secs_f64()) };
        let Some(division) = &self.division else { return vec![point(Attributes::new(), accounted)] };
        let part = division.parts.get(slot).copied().unwrap_or_default();
        let of = |used, time| point(Attributes::new().with(USE, used), Duration::from_nanos(time));
        let network = (part.network > 0 || slot == Slot::NODE).then(|| of(NETWORK, part.network));
        network.into_iter().chain([of(COMPUTE, part.compute)]).collect()
    }
}

impl Signal for WorkloadCpu {
    fn forget(&mut self, slot: Slot) {
        self.division.iter().for_each(|division| division.times.forget(slot));
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.times.borrow_mut().advance(workloads)?;
        if let Some(Division { times, parts }) = &mut self.division {
            parts.advance(&uses(&times.advance(workloads)?), |slot| workloads.start(slot));
        }
        let times = self.times.borrow();
        for (slot, start, time) in std::iter::once((Slot::NODE, self.start, times.node())).chain(times.slots()) {
            readings.add(slot, Metric { descriptor: &CPU_TIME, points: self.points(slot, start, time) });
        }
        let steal = Data::Double(times.steal().as_secs_f64());
        let steal = Point { attributes: Attributes::new(), start: self.start, data: steal };
        readings.add(Slot::NODE, Metric { descriptor: &STEAL_TIME, points: vec![steal] });
        let unread = lost(ENTRY.name, READ_FAILED, Attributes::new(), times.unread(), self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![unread] });
        Ok(())
    }
}
