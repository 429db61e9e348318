//! CPU time of each slot by use. Softirq time moves from the interrupted slot to the receivers of the packets.

use std::collections::BTreeMap;

use super::{
    super::{
        OpenContext, OpenError, ReadError,
        processor::{self, Network, NetworkTimes},
    },
    SharedCpuTimes, times,
};
use crate::{
    telemetry::UnixNanos,
    workloads::{Slot, Workloads},
};

/// Times of a slot in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time by the kernel's accounting.
    pub accounted: u64,
    /// Time for which network softirqs interrupted its tasks, a part of `accounted`.
    pub interrupted: u64,
    /// Time of its network events. Its socket calls are a part of `accounted`.
    pub network: Network,
}

/// CPU time of a slot in an interval, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Network events.
    pub network: u64,
    /// Other work. It is negative if more time moves from the slot than the kernel has accounted to it so far.
    pub compute: i64,
}

/// Reads the CPU time of each slot, with the time of its network events.
pub struct SlotTimes {
    times: SharedCpuTimes,
    network: NetworkTimes,
    /// Interrupted time; `None` if the kernel does not account it to tasks.
    interrupted: Option<processor::Use>,
    last: BTreeMap<Slot, (UnixNanos, Times)>,
}

impl SlotTimes {
    /// Opens the times.
    ///
    /// # Errors
    /// If the kernel has no CPU time by cgroup, or a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        // With CONFIG_IRQ_TIME_ACCOUNTING the time of tasks excludes softirqs already.
        let is_accounted = !opening.kernel.task_clock().excludes_interrupts;
        let interrupted = is_accounted.then(|| processor::Use::open(opening.kernel)).transpose()?;
        let (times, network) = (times(opening)?, NetworkTimes::open(opening)?);
        Ok(Self { times, network, interrupted, last: BTreeMap::new() })
    }

    /// Returns true if the time of network events is known.
    pub const fn measures_network(&self) -> bool {
        self.network.is_known()
    }

    /// Returns the CPU times by the kernel's accounting.
    pub const fn accounted(&self) -> &SharedCpuTimes {
        &self.times
    }

    /// Returns the growth of each slot since the previous call. The first call has only the growth of new workloads.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn advance(&mut self, workloads: &Workloads) -> Result<BTreeMap<Slot, Times>, ReadError> {
        self.times.borrow_mut().advance(workloads)?;
        let now = self.current(workloads);
        let growth =
            now.iter().map(|(slot, (start, times))| (*slot, times.since(self.before(*slot, *start)))).collect();
        self.last = now;
        Ok(growth)
    }

    /// Clears the interrupted time of a slot.
    pub fn forget(&self, slot: Slot) {
        self.interrupted.iter().for_each(|interrupted| interrupted.clear(slot));
    }

    fn before(&self, slot: Slot, start: UnixNanos) -> Times {
        self.last.get(&slot).filter(|(known, _)| *known == start).map_or_else(Times::default, |(_, times)| *times)
    }

    fn current(&self, workloads: &Workloads) -> BTreeMap<Slot, (UnixNanos, Times)> {
        let times = self.times.borrow();
        let accounted: BTreeMap<_, _> = std::iter::once((Slot::NODE, times.node()))
            .chain(times.slots().map(|(slot, _, time)| (slot, time)))
            .collect();
        let of = |(slot, network): (Slot, Network)| {
            let accounted = accounted.get(&slot).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let interrupted = self
                .interrupted
                .as_ref()
                .map_or(0, |measured| self.network.interrupted(slot).unwrap_or_else(|| measured.interrupted(slot)));
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

/// Returns the uses of each slot. Softirq time moves to the receivers: from the interrupted workload, or from the node if it
/// interrupted no workload, or if the kernel accounts it separately. The uses of all slots add up to their accounted time.
pub fn uses(times: &BTreeMap<Slot, Times>) -> BTreeMap<Slot, Uses> {
    let softirqs: u64 = times.values().map(|times| times.network.softirqs).sum();
    let workloads = times.iter().filter(|(slot, _)| **slot != Slot::NODE);
    let interrupted: u64 = workloads.map(|(_, times)| times.interrupted).sum();
    let of = |(slot, times): (&Slot, &Times)| {
        let moved =
            if *slot == Slot::NODE { signed(softirqs) - signed(interrupted) } else { signed(times.interrupted) };
        let Network { softirqs, calls } = times.network;
        let compute = signed(times.accounted) - moved - signed(calls);
        (*slot, Uses { network: softirqs + calls, compute })
    };
    times.iter().map(of).collect()
}

/// Returns a time below 2^63 ns, which are 292 years.
fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// Returns times by slot: accounted, interrupted, in softirqs and in calls.
    pub fn times(of: &[(u16, [u64; 4])]) -> BTreeMap<Slot, Times> {
        let times = |&(slot, [accounted, interrupted, softirqs, calls]): &(u16, [u64; 4])| {
            (Slot(slot), Times { accounted, interrupted, network: Network { softirqs, calls } })
        };
        of.iter().map(times).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::times, *};

    const NODE: u16 = Slot::NODE.0;

    fn parts(of: &[(u16, [u64; 4])]) -> BTreeMap<u16, (u64, i64)> {
        uses(&times(of)).into_iter().map(|(slot, used)| (slot.0, (used.network, used.compute))).collect()
    }

    #[test]
    fn softirq_time_moves_from_the_node_to_the_receivers() {
        let parts = parts(&[(NODE, [100, 0, 10, 0]), (7, [50, 0, 30, 20]), (8, [5, 0, 0, 0])]);
        assert_eq!(parts, BTreeMap::from([(NODE, (10, 60)), (7, (50, 30)), (8, (0, 5))]));
    }

    #[test]
    fn interrupted_workloads_do_not_pay_for_the_packets_of_others() {
        // 30 of 40 interrupted slot 8, and 10 an idle CPU.
        let parts = parts(&[(NODE, [100, 5, 0, 0]), (7, [50, 0, 40, 0]), (8, [80, 30, 0, 0])]);
        assert_eq!(parts, BTreeMap::from([(NODE, (0, 90)), (7, (40, 50)), (8, (0, 50))]));
    }

    #[test]
    fn time_that_is_not_yet_accounted_is_owed() {
        assert_eq!(parts(&[(NODE, [5, 0, 9, 0])]), BTreeMap::from([(NODE, (9, -4))]));
        assert_eq!(parts(&[(NODE, [5, 0, 0, 6])]), BTreeMap::from([(NODE, (6, -1))]));
    }
}
