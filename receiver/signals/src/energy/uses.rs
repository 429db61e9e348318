//! CPU use of each workload, with the part of its network events.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        OpenContext, OpenError, ReadError,
        processor::{self, Counts, Growth, HyperThreadRatio, Reader},
        workload_cpu::{self, SlotTimes, Times},
    },
    accounts::CpuUse,
    points::Basis,
};
use crate::workloads::{Slot, Workloads};

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
    times: SlotTimes,
    /// The counters of the processor; `None` if it has none.
    counters: Option<(Reader, HyperThreadRatio)>,
}

impl Uses {
    /// Opens the CPU times and counters.
    ///
    /// # Errors
    /// If the kernel has no CPU time by cgroup, or a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        let (kernel, settings) = (opening.kernel, &opening.settings.processor);
        let counts = settings.enabled && processor::counts(kernel);
        let reader = counts.then(|| Reader::open(kernel)).transpose()?;
        let counters = reader.map(|reader| (reader, settings.hyper_thread_ratio));
        Ok(Self { times: SlotTimes::open(opening)?, counters })
    }

    /// Returns the use of each slot since the previous call. The first call has only the use of new workloads.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn advance(&mut self, workloads: &Workloads) -> Result<Used, ReadError> {
        let growth = self.times.advance(workloads)?;
        let slots = cpu_times(&growth);
        let time = Duration::from_nanos(slots.values().map(|used| used.network + used.compute).sum());
        let Some((reader, ratio)) = &mut self.counters else {
            return Ok(Used { slots, basis: Basis::CpuTime, time });
        };
        let counted = reader.advance(workloads);
        Ok(cycles(&counted, &growth, *ratio, time))
    }

    /// Clears the interrupted time of a slot, unless the signal `processor` does.
    pub fn forget(&self, slot: Slot) {
        self.times.forget(slot);
    }
}

/// Returns the use of each slot by CPU time.
fn cpu_times(growth: &BTreeMap<Slot, Times>) -> BTreeMap<Slot, CpuUse> {
    let positive = |time: i64| u64::try_from(time).unwrap_or(0);
    let of = |(slot, uses): (Slot, workload_cpu::Uses)| {
        (slot, CpuUse { network: uses.network, compute: positive(uses.compute) })
    };
    workload_cpu::uses(growth).into_iter().map(of).collect()
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
    use crate::workload_cpu::testing::times;

    const NODE: u16 = Slot::NODE.0;

    fn parts(slots: &BTreeMap<Slot, CpuUse>) -> Vec<(u16, u64, u64)> {
        slots.iter().map(|(slot, used)| (slot.0, used.network, used.compute)).collect()
    }

    #[test]
    fn no_part_is_negative() {
        assert_eq!(parts(&cpu_times(&times(&[(NODE, [5, 0, 9, 0])]))), [(NODE, 9, 0)]);
        assert_eq!(parts(&cpu_times(&times(&[(NODE, [5, 0, 0, 6])]))), [(NODE, 6, 0)]);
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
