//! CPU use of each workload, with the part of its network events.

use std::{collections::BTreeMap, time::Duration};

use undercurrent_ebpf::abi::{
    cost::CostKind,
    softirq::{Softirq, SoftirqCells},
};

use super::{
    super::{OpenContext, OpenError, ReadError, network_cpu, workload_cpu},
    accounts::CpuUse,
};
use crate::{
    kernel::maps::ByCpu,
    signals::SharedCpuTimes,
    telemetry::UnixNanos,
    workloads::{Slot, Workloads},
};

/// Cumulative times of a slot in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time by the kernel's accounting.
    pub accounted: u64,
    /// Softirq time that the slot's packets caused.
    pub softirqs: u64,
    /// Time of its socket calls, a part of `accounted`.
    pub calls: u64,
}

/// Reads the CPU use of each workload.
pub struct Uses {
    times: SharedCpuTimes,
    /// The last reading of the times that was used.
    used: u64,
    network: NetworkTimes,
    last: BTreeMap<Slot, (UnixNanos, Times)>,
}

/// CPU time of network events. Without it, `undercurrent.energy.use` is never `network`.
struct NetworkTimes {
    shares: Option<network_cpu::Shares>,
    softirqs: Option<ByCpu<SoftirqCells>>,
    /// True if the receive softirq is divided over slots.
    divides: bool,
}

impl Uses {
    /// Opens the CPU times.
    ///
    /// # Errors
    /// If the kernel has no CPU time by cgroup, or a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        let measured = opening.settings.network_cpu.measures_softirqs();
        let network = NetworkTimes {
            shares: measured.then(|| network_cpu::Shares::open(opening.kernel)).transpose()?,
            softirqs: measured.then(|| opening.softirqs()).transpose()?,
            divides: network_cpu::divides(opening.kernel),
        };
        Ok(Self { times: workload_cpu::times(opening)?, used: 0, network, last: BTreeMap::new() })
    }

    /// Returns the use of each slot since the previous call. The first call has only the use of new workloads.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn advance(&mut self, workloads: &Workloads) -> Result<BTreeMap<Slot, CpuUse>, ReadError> {
        self.times.borrow_mut().advance(&mut self.used, workloads)?;
        let now = self.current(workloads);
        let growth: BTreeMap<Slot, Times> =
            now.iter().map(|(slot, (start, times))| (*slot, times.since(self.before(*slot, *start)))).collect();
        self.last = now;
        Ok(uses(&growth))
    }

    fn before(&self, slot: Slot, start: UnixNanos) -> Times {
        self.last.get(&slot).filter(|(known, _)| *known == start).map_or_else(Times::default, |(_, times)| *times)
    }

    fn current(&self, workloads: &Workloads) -> BTreeMap<Slot, (UnixNanos, Times)> {
        let times = self.times.borrow();
        let node = workloads.start(Slot::NODE).unwrap_or_default();
        let slots = std::iter::once((Slot::NODE, node)).chain(workloads.slots());
        let mut all: BTreeMap<Slot, (UnixNanos, Times)> =
            slots.map(|(slot, start)| (slot, (start, self.network.of(slot)))).collect();
        for (slot, _, time) in std::iter::once((Slot::NODE, node, times.node())).chain(times.slots()) {
            if let Some((_, known)) = all.get_mut(&slot) {
                known.accounted = nanoseconds(time);
            }
        }
        all
    }
}

impl NetworkTimes {
    fn of(&self, slot: Slot) -> Times {
        let Some(shares) = &self.shares else { return Times::default() };
        let time = |kind| shares.time(slot, kind);
        let own = if self.divides { time(CostKind::ReceiveSoftirq) } else { 0 };
        let node = if slot == Slot::NODE { self.undivided() } else { 0 };
        let calls = time(CostKind::SocketReceive) + time(CostKind::SocketSend);
        Times { accounted: 0, softirqs: own + node, calls }
    }

    /// Returns the time of the softirqs that are not divided over slots.
    fn undivided(&self) -> u64 {
        let mut sum = 0;
        let count = |cells: &SoftirqCells| {
            let time = |softirq: Softirq| cells.state[softirq as usize].time;
            time(Softirq::Transmit) + if self.divides { 0 } else { time(Softirq::Receive) }
        };
        self.softirqs.iter().for_each(|softirqs| softirqs.for_each(|_, cells| sum += count(cells)));
        sum
    }
}

impl Times {
    /// Returns the growth since earlier times.
    const fn since(self, before: Self) -> Self {
        Self {
            accounted: self.accounted.saturating_sub(before.accounted),
            softirqs: self.softirqs.saturating_sub(before.softirqs),
            calls: self.calls.saturating_sub(before.calls),
        }
    }
}

/// Returns the use of each slot. Softirq time moves from the node, where the kernel accounts it, to the receivers.
fn uses(times: &BTreeMap<Slot, Times>) -> BTreeMap<Slot, CpuUse> {
    let softirqs: u64 = times.values().map(|times| times.softirqs).sum();
    let of = |(slot, times): (&Slot, &Times)| {
        let moved = if *slot == Slot::NODE { softirqs } else { 0 };
        let compute = times.accounted.saturating_sub(moved).saturating_sub(times.calls);
        (*slot, CpuUse { network: times.softirqs + times.calls, compute })
    };
    times.iter().map(of).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[(u16, [u64; 3])]) -> Vec<(u16, u64, u64)> {
        let times = times
            .iter()
            .map(|&(slot, [accounted, softirqs, calls])| (Slot(slot), Times { accounted, softirqs, calls }));
        uses(&times.collect()).into_iter().map(|(slot, used)| (slot.0, used.network, used.compute)).collect()
    }

    #[test]
    fn softirq_time_moves_from_the_node_to_the_receivers() {
        let node = Slot::NODE.0;
        let mut parts = of(&[(node, [100, 10, 0]), (7, [50, 30, 20]), (8, [5, 0, 0])]);
        parts.sort_unstable();
        let mut expected = [(node, 10, 60), (7, 50, 30), (8, 0, 5)];
        expected.sort_unstable();
        assert_eq!(parts, expected);
        assert_eq!(parts.iter().map(|(_, network, compute)| network + compute).sum::<u64>(), 155);
    }

    #[test]
    fn no_part_is_negative() {
        assert_eq!(of(&[(Slot::NODE.0, [5, 9, 0])]), [(Slot::NODE.0, 9, 0)]);
        assert_eq!(of(&[(Slot::NODE.0, [5, 0, 6])]), [(Slot::NODE.0, 6, 0)]);
    }
}
