//! The state and totals of the two network softirqs on one CPU.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A network softirq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Softirq {
    /// `NET_TX_SOFTIRQ`: completions and stalled queues.
    Transmit = 0,
    /// `NET_RX_SOFTIRQ`: NAPI polls, GRO and protocol receive.
    Receive = 1,
}

impl Softirq {
    /// Both softirqs.
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

/// One softirq on one CPU. `raised` has the raise hook as its only writer, everything else the entry and exit hooks,
/// which cannot interrupt each other. All times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqCell {
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

const _: () = assert!(size_of::<SoftirqCell>() == 40);
