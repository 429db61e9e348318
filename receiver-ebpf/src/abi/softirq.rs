//! The state and totals of the two network softirqs on one CPU.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::histogram::HistogramCell;

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

    /// The softirq behind the kernel's vector number (`enum` in `include/linux/interrupt.h`, unchanged since 2.6).
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

/// The state of one softirq on one CPU. `raised` has the raise hook as its only writer, everything else the entry and exit hooks,
/// which cannot interrupt each other. All times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqState {
    /// When the softirq was first raised after it last ran.
    pub raised: u64,
    /// When it last began to run.
    pub entered: u64,
    /// When the run in progress began; zero outside of one.
    pub running: u64,
    /// Total time between entry and exit.
    pub time: u64,
    /// Runs completed.
    pub runs: u64,
}

/// What one CPU recorded of the network softirqs, by [`Softirq`].
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqCells {
    /// State and totals.
    pub state: [SoftirqState; 2],
    /// Runs of which no raise was seen since the run before.
    pub unseen_raises: [u64; 2],
    /// Time from the first raise to the run.
    pub wait: [HistogramCell; 2],
}

const _: () = {
    assert!(size_of::<SoftirqState>() == 40);
    assert!(size_of::<SoftirqCells>() == 2 * (40 + 8 + size_of::<HistogramCell>()));
};
