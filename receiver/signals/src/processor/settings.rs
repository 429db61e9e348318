//! The settings of `processor`.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::counters::{Events, OptionalCounter, Wanted};

/// The counters of the processor, by workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if the counters are read. Without hardware counters no program is attached.
    pub enabled: bool,
    /// The counters to read in addition to cycles: `instructions`, `cache_references` and `cache_misses`. Each one takes time at
    /// switches to the idle task, from it, or to a task in other cgroups. Energy does not need them.
    pub counters: BTreeSet<OptionalCounter>,
    /// Throughput of a core with two busy hyper-threads, relative to one: a cycle beside a busy sibling counts for half of it
    /// in the division of energy.
    #[schemars(range(min = 1.0, max = 2.0))]
    pub hyper_thread_ratio: HyperThreadRatio,
    /// `hardware`, or `software` to test the programs on a machine without counters: the kernel's CPU clock replaces cycles and
    /// instructions, also those that sample CPUs; page faults replace cache references, and context switches replace cache misses.
    pub events: Events,
}

impl Settings {
    /// Returns the counters to read; `None` if the signal is off.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        self.enabled.then(|| Wanted { events: self.events, others: self.counters.clone() })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            counters: OptionalCounter::ALL.into(),
            hyper_thread_ratio: HyperThreadRatio(1.1),
            events: Events::Hardware,
        }
    }
}

/// `HT_r` of Brondolin and Santambrogio, 2020: 1 to 2.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct HyperThreadRatio(f64);

impl HyperThreadRatio {
    /// Returns the weighted cycles of all `cycles`, of which `shared` passed beside a busy sibling (equation 1 of the paper).
    pub fn weigh(self, cycles: u64, shared: u64) -> u64 {
        let shared = shared.min(cycles);
        // The product is below 2^53 for a day of cycles.
        cycles - shared + (shared as f64 * (self.0 / 2.0)).round() as u64
    }
}

impl TryFrom<f64> for HyperThreadRatio {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        if (1.0..=2.0).contains(&ratio) {
            Ok(Self(ratio))
        } else {
            Err(format!("`{ratio}` is out of range: choose 1 to 2"))
        }
    }
}

impl From<HyperThreadRatio> for f64 {
    fn from(ratio: HyperThreadRatio) -> Self {
        ratio.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_beside_a_busy_sibling_count_for_a_half_of_the_ratio() {
        let ratio = HyperThreadRatio(1.1);
        assert_eq!(
            [(1000, 0), (1000, 1000), (1000, 400), (1000, 2000)].map(|(all, shared)| ratio.weigh(all, shared)),
            [1000, 550, 820, 550]
        );
        assert!(HyperThreadRatio::try_from(0.9).is_err() && HyperThreadRatio::try_from(f64::NAN).is_err());
    }
}
