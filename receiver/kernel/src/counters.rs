//! The counters of the processor that programs read.

use std::{collections::BTreeSet, iter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::processor::Counter;

/// The events that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Events {
    /// The counters of the processor.
    Hardware,
    /// Events of the kernel, for tests on machines without counters: the CPU's clock in the place of cycles and instructions, and
    /// page faults and context switches.
    Software,
}

/// A counter that the configuration can disable. The division of energy needs only cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptionalCounter {
    /// Retired instructions.
    Instructions,
    /// References to the last-level cache.
    CacheReferences,
    /// Misses of the last-level cache.
    CacheMisses,
}

impl OptionalCounter {
    /// Every optional counter.
    pub const ALL: [Self; 3] = [Self::Instructions, Self::CacheReferences, Self::CacheMisses];

    const fn counter(self) -> Counter {
        match self {
            Self::Instructions => Counter::Instructions,
            Self::CacheReferences => Counter::CacheReferences,
            Self::CacheMisses => Counter::CacheMisses,
        }
    }
}

/// The counters to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The events that count.
    pub events: Events,
    /// The optional counters.
    pub others: BTreeSet<OptionalCounter>,
}

impl Wanted {
    /// Returns the counters. The cycles are the first.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        iter::once(Counter::Cycles).chain(self.others.iter().map(|other| other.counter()))
    }
}
