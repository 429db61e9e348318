//! The state and totals of the two network softirqs on one CPU.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{histogram::HistogramCell, workload::Slot};

/// A network softirq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Softirq {
    /// `NET_TX_SOFTIRQ`: completions and stalled queues.
    Transmit,
    /// `NET_RX_SOFTIRQ`: NAPI polls, GRO and protocol receive.
    Receive,
}

impl Softirq {
    /// Both softirqs, each at its own index.
    pub const ALL: [Self; 2] = [Self::Transmit, Self::Receive];

    /// Returns the softirq of a vector number (`enum` in `include/linux/interrupt.h`, unchanged since 2.6).
    #[must_use]
    #[inline(always)]
    pub const fn from_vector(vector: u32) -> Option<Self> {
        match vector {
            2 => Some(Self::Transmit),
            3 => Some(Self::Receive),
            _ => None,
        }
    }
}

/// The state of one softirq on one CPU. Only the raise hook writes `raised`. Only the entry and exit hooks, which cannot interrupt
/// each other, write the other words. All times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqState {
    /// Time of the first raise after the last run.
    pub raised: u64,
    /// Start of the last run.
    pub entered: u64,
    /// Time from the raise to the last run, which is not recorded yet; zero if there is none.
    pub waited: u64,
    /// Start of the current run; zero if there is none.
    pub running: u64,
    /// Total time between entry and exit.
    pub time: u64,
    /// Completed runs.
    pub runs: u64,
}

impl SoftirqState {
    /// Returns the time from the raise to a run that starts at `now`; `None` if no raise was recorded since the previous run.
    ///
    /// An interrupt after the entry hook read its clock may raise the softirq again. That raise belongs to the next run.
    #[must_use]
    #[inline(always)]
    pub const fn wait_until(&self, now: u64) -> Option<u64> {
        let raised = self.raised;
        if raised > self.entered && raised <= now { Some(now - raised) } else { None }
    }
}

/// The division of the receive softirq's time over the packets of a run, on one CPU. Only programs that run in this softirq write
/// it. All times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Division {
    /// Time of the current run's last packet, or the run's start before its first packet; zero outside of a run.
    pub since: u64,
    /// Slot of the current run's last delivered packet, plus one; zero if there is none.
    pub last: u64,
    /// Time of runs without a measured packet, which the next measured packet receives.
    pub pending: u64,
    /// Time of the last packets for the slot `last`, which is not charged yet.
    pub owed: u64,
}

impl Division {
    /// Returns the division of a run that starts now.
    #[must_use]
    #[inline(always)]
    pub const fn started(self, now: u64) -> Self {
        Self { since: now, last: 0, owed: 0, pending: self.pending }
    }

    /// Returns the slot of the last delivered packet; `None` if there is none.
    #[must_use]
    #[inline(always)]
    pub const fn last_slot(&self) -> Option<Slot> {
        if self.last == 0 { None } else { Some(Slot((self.last - 1) as u16)) }
    }
}

/// Cells of the network softirqs on one CPU, by [`Softirq`].
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqCells {
    /// State and totals.
    pub state: [SoftirqState; 2],
    /// Division of the receive softirq's time.
    pub division: Division,
    /// Runs without a recorded raise since the previous run.
    pub unseen_raises: [u64; 2],
    /// Time from the first raise to the run.
    pub wait: [HistogramCell; 2],
}

const _: () = {
    assert!(size_of::<SoftirqState>() == 48);
    assert!(size_of::<Division>() == 32);
    assert!(size_of::<SoftirqCells>() == 32 + 2 * (48 + 8 + size_of::<HistogramCell>()));
};
