//! The events that interrupt every CPU regularly.

use serde::{Deserialize, Serialize};

/// An event that interrupts every CPU, and runs its own program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CpuEvent {
    /// A timer that samples. Its period has nanoseconds.
    Clock,
    /// The processor's cycle counter, which samples. It stops while a CPU is halted. Its period has cycles.
    Cycles,
    /// A timer that reads the processor's counters. Its period has nanoseconds.
    Tick,
}

/// The sampling frequency of an event until user space sets another one, in hertz. It is no divisor of a tick of the kernel, so samples
/// do not coincide with work at each tick.
const FIRST_FREQUENCY: u64 = 99;
/// The clock rate of a fast processor, in hertz. A period in cycles at this rate is not too short on a slower processor.
pub const FASTEST: u64 = 5_000_000_000;

impl CpuEvent {
    /// Returns the name of its program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Clock => "sample",
            Self::Cycles => "sample_cycles",
            Self::Tick => "tick",
        }
    }

    /// Returns the period until user space sets another one.
    #[must_use]
    pub const fn first_period(self) -> u64 {
        match self {
            Self::Clock | Self::Cycles => self.highest_rate() / FIRST_FREQUENCY,
            Self::Tick => self.highest_rate(),
        }
    }

    /// Returns the counted units of a second, at most.
    #[must_use]
    pub const fn highest_rate(self) -> u64 {
        match self {
            Self::Clock | Self::Tick => 1_000_000_000,
            Self::Cycles => FASTEST,
        }
    }
}
