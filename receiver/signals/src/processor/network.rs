//! CPU time of network events by workload, for signals that move it to the receivers of the packets.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::{
    cost::CostKind,
    softirq::{Softirq, SoftirqCells},
};

use super::super::{OpenContext, OpenError, network_cpu};
use crate::{
    kernel::{
        hooks::{SOFTIRQ_ENTRY, SOFTIRQ_EXIT},
        maps::ByCpu,
    },
    workloads::{Slot, Workloads},
};

/// CPU time of a workload's network events in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Softirqs for its packets.
    pub softirqs: u64,
    /// Its socket calls.
    pub calls: u64,
}

/// Reads the CPU time of network events. All are zero if `network_cpu` is off.
pub struct NetworkTimes {
    shares: Option<network_cpu::Shares>,
    softirqs: Option<ByCpu<SoftirqCells>>,
    /// True if the receive softirq is divided over slots.
    divides: bool,
    /// True if the programs run.
    is_measured: bool,
}

impl NetworkTimes {
    /// Opens the maps of `network_cpu`.
    ///
    /// # Errors
    /// If a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        let measured = opening.settings.network_cpu.measures_softirqs();
        Ok(Self {
            shares: measured.then(|| network_cpu::Shares::open(opening.kernel)).transpose()?,
            softirqs: measured.then(|| opening.softirqs()).transpose()?,
            divides: network_cpu::divides(opening.kernel),
            is_measured: measured && [&SOFTIRQ_ENTRY, &SOFTIRQ_EXIT].iter().all(|hook| opening.kernel.serves(hook)),
        })
    }

    /// Returns true if the time is measured.
    pub const fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Returns the time of every slot since its start.
    pub fn read(&self, workloads: &Workloads) -> BTreeMap<Slot, Network> {
        let slots = std::iter::once(Slot::NODE).chain(workloads.slots().map(|(slot, _)| slot));
        slots.map(|slot| (slot, self.slot(slot))).collect()
    }

    /// Returns the softirq time of every slot since its start, in nanoseconds.
    pub fn softirqs(&self, workloads: &Workloads) -> BTreeMap<Slot, u64> {
        self.read(workloads).into_iter().map(|(slot, network)| (slot, network.softirqs)).collect()
    }

    fn slot(&self, slot: Slot) -> Network {
        let Some(shares) = &self.shares else { return Network::default() };
        let time = |kind| shares.time(slot, kind);
        let own = if self.divides { time(CostKind::ReceiveSoftirq) } else { 0 };
        let node = if slot == Slot::NODE { self.undivided() } else { 0 };
        Network { softirqs: own + node, calls: time(CostKind::SocketReceive) + time(CostKind::SocketSend) }
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
