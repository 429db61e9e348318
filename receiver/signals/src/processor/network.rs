//! CPU time of network events by workload, for signals that move it to the receivers of the packets.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::{
    cost::CostKind,
    softirq::{Softirq, SoftirqCells},
};

use super::super::{Estimates, OpenContext, OpenError, network_cpu};
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

/// Reads the CPU time of network events: the exact time, or else an estimate.
pub enum NetworkTimes {
    /// Measured by `network_cpu`.
    Exact(ExactTimes),
    /// Estimated by `network_functions`.
    Estimated(Estimates),
    /// Both signals are off.
    Unknown,
}

/// The maps of `network_cpu`.
pub struct ExactTimes {
    shares: network_cpu::Shares,
    softirqs: ByCpu<SoftirqCells>,
    /// True if the receive softirq is divided over slots.
    divides: bool,
}

impl NetworkTimes {
    /// Opens the times.
    ///
    /// # Errors
    /// If a map cannot be opened.
    pub fn open(opening: &OpenContext<'_>) -> Result<Self, OpenError> {
        let is_served = || [&SOFTIRQ_ENTRY, &SOFTIRQ_EXIT].iter().all(|hook| opening.kernel.serves(hook));
        if opening.settings.network_cpu.measures_softirqs() && is_served() {
            return Ok(Self::Exact(ExactTimes {
                shares: network_cpu::Shares::open(opening.kernel)?,
                softirqs: opening.softirqs()?,
                divides: network_cpu::divides(opening.kernel),
            }));
        }
        Ok(opening.estimates.get().map_or(Self::Unknown, |estimates| Self::Estimated(estimates.clone())))
    }

    /// Returns true if the time is measured or estimated.
    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Returns the estimated time for which softirqs interrupted the tasks of a slot, in nanoseconds; `None` if it is not estimated.
    pub fn interrupted(&self, slot: Slot) -> Option<u64> {
        match self {
            Self::Estimated(estimates) => Some(estimates.interrupted(slot)),
            Self::Exact(_) | Self::Unknown => None,
        }
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
        match self {
            Self::Exact(exact) => exact.slot(slot),
            Self::Estimated(estimates) => Network { softirqs: estimates.softirqs(slot), calls: estimates.calls(slot) },
            Self::Unknown => Network::default(),
        }
    }
}

impl ExactTimes {
    fn slot(&self, slot: Slot) -> Network {
        let time = |kind| self.shares.time(slot, kind);
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
        self.softirqs.for_each(|_, cells| sum += count(cells));
        sum
    }
}
