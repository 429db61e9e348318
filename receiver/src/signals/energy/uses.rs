//! CPU use of each workload, with the part of its network events.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        OpenContext, OpenError, ReadError,
        processor::{self, Counts, Growth, HyperThreadRatio, Network, NetworkTimes, Reader},
        workload_cpu,
    },
    accounts::CpuUse,
    points::Basis,
};
use crate::{
    signals::SharedCpuTimes,
    telemetry::UnixNanos,
    workloads::{Slot, Workloads},
};

/// Cumulative times of a slot in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time by the kernel's accounting.
    pub accounted: u64,
    /// Time for which network softirqs interrupted its tasks, a part of `accounted`.
    pub interrupted: u64,
    /// Time of its network events. Its socket calls are a part of `accounted`.
    pub network: Network,
}

/// Uses of an interval.
pub struct Used {
    /// The use of each slot.
    pub slots: BTreeMap<Slot, CpuUse>,
    /// The unit of the uses.
    pub basis: Basis,
    /// CPU time of the node, weighted for hyper-threads.
    pub time: Duration,
}

/// Reads the CPU use of each workload.
pub struct Uses {
    times: SharedCpuTimes,
    network: NetworkTimes,
    /// Interrupted time; `None` if the kernel does not account it to tasks.
    interrupted: Option<processor::Use>,
    /// The counters of the processor; `None` if it has none.
    counters: Option<(Reader, HyperThreadRatio)>,
    last: BTreeMap<Slot, (UnixNanos, Times)>,
}

impl Uses {
    /// Opens the CPU times and counters.
    ///
    /// # Errors
    /// If the kernel has no CPU time by cgroup, or a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        let (kernel, settings) = (opening.kernel, &opening.settings.processor);
        // With CONFIG_IRQ_TIME_ACCOUNTING the time of tasks excludes softirqs already.
        let is_accounted = !kernel.task_clock().excludes_interrupts;
        let counts = settings.enabled && processor::counts(kernel);
        let reader = counts.then(|| Reader::open(kernel)).transpose()?;
        Ok(Self {
            times: workload_cpu::times(opening)?,
            network: NetworkTimes::open(opening)?,
            interrupted: is_accounted.then(|| processor::Use::open(kernel)).transpose()?,
            counters: reader.map(|reader| (reader, settings.hyper_thread_ratio)),
            last: BTreeMap::new(),
        })
    }

    /// Returns the use of each slot since the previous call. The first call has only the use of new workloads.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn advance(&mut self, workloads: &Workloads) -> Result<Used, ReadError> {
        self.times.borrow_mut().advance(workloads)?;
        let now = self.current(workloads);
        let growth: BTreeMap<Slot, Times> =
            now.iter().map(|(slot, (start, times))| (*slot, times.since(self.before(*slot, *start)))).collect();
        self.last = now;
        let slots = uses(&growth);
        let time = Duration::from_nanos(slots.values().map(|used| used.network + used.compute).sum());
        let Some((reader, ratio)) = &mut self.counters else {
            return Ok(Used { slots, basis: Basis::CpuTime, time });
        };
        let counted = reader.advance(workloads);
        Ok(cycles(&counted, &growth, *ratio, time))
    }

    /// Clears the interrupted time of a slot, unless the signal `processor` does.
    pub fn forget(&self, slot: Slot) {
        self.interrupted.iter().for_each(|interrupted| interrupted.clear(slot));
    }

    fn before(&self, slot: Slot, start: UnixNanos) -> Times {
        self.last.get(&slot).filter(|(known, _)| *known == start).map_or_else(Times::default, |(_, times)| *times)
    }

    fn current(&self, workloads: &Workloads) -> BTreeMap<Slot, (UnixNanos, Times)> {
        let times = self.times.borrow();
        let accounted: BTreeMap<Slot, Duration> = std::iter::once((Slot::NODE, times.node()))
            .chain(times.slots().map(|(slot, _, time)| (slot, time)))
            .collect();
        let of = |(slot, network): (Slot, Network)| {
            let accounted = accounted.get(&slot).map_or(0, |time| nanoseconds(*time));
            let interrupted = self.interrupted.as_ref().map_or(0, |interrupted| interrupted.interrupted(slot));
            Some((slot, (workloads.start(slot)?, Times { accounted, interrupted, network })))
        };
        self.network.read(workloads).into_iter().filter_map(of).collect()
    }
}

impl Times {
    /// Returns the growth since earlier times.
    const fn since(self, before: Self) -> Self {
        let (network, earlier) = (self.network, before.network);
        Self {
            accounted: self.accounted.saturating_sub(before.accounted),
            interrupted: self.interrupted.saturating_sub(before.interrupted),
            network: Network {
                softirqs: network.softirqs.saturating_sub(earlier.softirqs),
                calls: network.calls.saturating_sub(earlier.calls),
            },
        }
    }
}

/// Returns the use of each slot by CPU time. Softirq time moves to the receivers: from the interrupted workload, or from the node
/// if it interrupted no workload, or if the kernel accounts it separately.
fn uses(times: &BTreeMap<Slot, Times>) -> BTreeMap<Slot, CpuUse> {
    let softirqs: u64 = times.values().map(|times| times.network.softirqs).sum();
    let workloads = times.iter().filter(|(slot, _)| **slot != Slot::NODE);
    let interrupted: u64 = workloads.map(|(_, times)| times.interrupted).sum();
    let of = |(slot, times): (&Slot, &Times)| {
        let moved = if *slot == Slot::NODE { softirqs.saturating_sub(interrupted) } else { times.interrupted };
        let Network { softirqs, calls } = times.network;
        let compute = times.accounted.saturating_sub(moved).saturating_sub(calls);
        (*slot, CpuUse { network: softirqs + calls, compute })
    };
    times.iter().map(of).collect()
}

/// Returns the use of each slot by weighted cycles. The cycles of softirqs are not in the counts of the interrupted slots.
fn cycles(growth: &Growth, times: &BTreeMap<Slot, Times>, ratio: HyperThreadRatio, time: Duration) -> Used {
    let weigh = |counts: &Counts| ratio.weigh(counts[0], counts[counts.len() - 1]);
    let softirqs = times.iter().map(|(slot, times)| (*slot, times.network.softirqs)).collect();
    let moved = growth.divided_softirqs(&softirqs);
    let zero = Counts::default();
    let slots: BTreeMap<Slot, CpuUse> = times
        .iter()
        .map(|(slot, times)| {
            let own = weigh(growth.own.get(slot).unwrap_or(&zero));
            let calls = part(own, times.network.calls, times.accounted);
            let network = weigh(moved.get(slot).unwrap_or(&zero)) + calls;
            (*slot, CpuUse { network, compute: own - calls })
        })
        .collect();
    let all = growth.own.values().chain(moved.values()).map(|counts| counts[0]).sum();
    let weighted = slots.values().map(|used| used.network + used.compute).sum();
    let time = Duration::from_nanos(part(nanoseconds(time), weighted, all));
    Used { slots, basis: Basis::Cycles, time }
}

/// Returns `amount * numerator / denominator`, at most the amount; zero for a denominator of zero.
fn part(amount: u64, numerator: u64, denominator: u64) -> u64 {
    let part = (u128::from(amount) * u128::from(numerator)).checked_div(denominator.into()).unwrap_or(0);
    u64::try_from(part).unwrap_or(u64::MAX).min(amount)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u16 = Slot::NODE.0;

    fn times(of: &[(u16, [u64; 4])]) -> BTreeMap<Slot, Times> {
        let times = |&(slot, [accounted, interrupted, softirqs, calls]): &(u16, [u64; 4])| {
            (Slot(slot), Times { accounted, interrupted, network: Network { softirqs, calls } })
        };
        of.iter().map(times).collect()
    }

    fn parts(slots: &BTreeMap<Slot, CpuUse>) -> Vec<(u16, u64, u64)> {
        let mut parts: Vec<_> = slots.iter().map(|(slot, used)| (slot.0, used.network, used.compute)).collect();
        parts.sort_unstable();
        parts
    }

    fn sorted<const N: usize>(mut parts: [(u16, u64, u64); N]) -> [(u16, u64, u64); N] {
        parts.sort_unstable();
        parts
    }

    #[test]
    fn softirq_time_moves_from_the_node_to_the_receivers() {
        let parts = parts(&uses(&times(&[(NODE, [100, 0, 10, 0]), (7, [50, 0, 30, 20]), (8, [5, 0, 0, 0])])));
        assert_eq!(parts, sorted([(NODE, 10, 60), (7, 50, 30), (8, 0, 5)]));
        assert_eq!(parts.iter().map(|(_, network, compute)| network + compute).sum::<u64>(), 155);
    }

    #[test]
    fn interrupted_workloads_do_not_pay_for_the_packets_of_others() {
        // 30 of 40 interrupted slot 8, and 10 an idle CPU.
        let parts = parts(&uses(&times(&[(NODE, [100, 5, 0, 0]), (7, [50, 0, 40, 0]), (8, [80, 30, 0, 0])])));
        assert_eq!(parts, sorted([(NODE, 0, 90), (7, 40, 50), (8, 0, 50)]));
    }

    #[test]
    fn no_part_is_negative() {
        assert_eq!(parts(&uses(&times(&[(NODE, [5, 0, 9, 0])]))), [(NODE, 9, 0)]);
        assert_eq!(parts(&uses(&times(&[(NODE, [5, 0, 0, 6])]))), [(NODE, 6, 0)]);
    }

    #[test]
    fn cycles_are_weighted_and_those_of_softirqs_move() {
        let ratio = HyperThreadRatio::try_from(1.1).expect("a ratio");
        let counts = |cycles, shared| [cycles, 0, 0, 0, shared];
        let own = BTreeMap::from([(Slot(7), counts(1000, 0)), (Slot(8), counts(1000, 1000))]);
        let growth = Growth { own, softirqs: counts(400, 0), scaled: false, failed: 0 };
        let times = times(&[(7, [100, 0, 10, 25]), (8, [100, 0, 30, 0])]);
        let used = cycles(&growth, &times, ratio, Duration::from_nanos(240));
        assert_eq!(parts(&used.slots), [(7, 100 + 250, 750), (8, 300, 550)]);
        // 1950 weighted of 2400 cycles.
        assert_eq!((used.basis, used.time), (Basis::Cycles, Duration::from_nanos(195)));
    }
}
