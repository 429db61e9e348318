//! Cumulative CPU time of each slot by use.

use std::collections::BTreeMap;

use super::uses::Uses;
use crate::{telemetry::UnixNanos, workloads::Slot};

/// CPU time by slot. No total ever falls.
///
/// Softirq time moves between slots, and its clock is not the clock of the kernel's accounting. So more time may move from a
/// slot than the kernel has accounted to it. The slot then owes the difference: `compute` does not grow until later growth
/// has paid it. The sum of all totals always equals the accounted time of all slots plus the owed time.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<Slot, Part>);

/// The totals of a slot in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    start: UnixNanos,
    /// Network events.
    pub network: u64,
    /// The highest sum of other work so far.
    pub compute: u64,
    /// The sum of other work.
    sum: i64,
}

impl Part {
    fn add(&mut self, uses: Uses) {
        self.network += uses.network;
        self.sum += uses.compute;
        self.compute = self.compute.max(u64::try_from(self.sum).unwrap_or(0));
    }

    /// Returns the time by which `compute` is too high.
    const fn owed(&self) -> i64 {
        self.compute.cast_signed() - self.sum
    }
}

impl Parts {
    /// Adds the uses of an interval. Slots with a changed or missing start time are removed, and the node takes over the time that
    /// they owe.
    pub fn advance(&mut self, uses: &BTreeMap<Slot, Uses>, start: impl Fn(Slot) -> Option<UnixNanos>) {
        let gone = self.0.extract_if(.., |slot, part| start(*slot) != Some(part.start));
        let owed: i64 = gone.map(|(_, part)| part.owed()).sum();
        if let Some(node) = self.0.get_mut(&Slot::NODE) {
            node.sum -= owed;
        }
        for (slot, uses) in uses {
            let Some(start) = start(*slot) else { continue };
            self.0.entry(*slot).or_insert(Part { start, ..Part::default() }).add(*uses);
        }
    }

    /// Returns the totals of a slot.
    pub fn get(&self, slot: Slot) -> Option<&Part> {
        self.0.get(&slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{
        array::{uniform3, uniform4},
        prelude::*,
    };

    use super::{
        super::uses::{testing::times, uses},
        *,
    };

    const NODE: u16 = Slot::NODE.0;

    const ALWAYS: fn(Slot) -> Option<UnixNanos> = |_| Some(UnixNanos(1));

    fn totals(parts: &Parts) -> Vec<(u16, u64, u64)> {
        parts.0.iter().map(|(slot, part)| (slot.0, part.network, part.compute)).collect()
    }

    #[test]
    fn owed_time_is_paid_by_later_growth() {
        let mut parts = Parts::default();
        // 30 interrupted slot 7, and only 10 are accounted to it so far.
        parts.advance(&uses(&times(&[(NODE, [50, 0, 0, 0]), (7, [10, 30, 0, 0]), (8, [0, 0, 30, 0])])), ALWAYS);
        assert_eq!(totals(&parts), [(NODE, 0, 50), (7, 0, 0), (8, 30, 0)]);
        parts.advance(&uses(&times(&[(NODE, [0; 4]), (7, [25, 0, 0, 0]), (8, [0; 4])])), ALWAYS);
        assert_eq!(totals(&parts), [(NODE, 0, 50), (7, 0, 5), (8, 30, 0)]);
    }

    #[test]
    fn the_node_takes_over_what_a_removed_slot_owes() {
        let mut parts = Parts::default();
        parts.advance(&uses(&times(&[(NODE, [50, 0, 0, 0]), (7, [10, 30, 0, 0]), (8, [0, 0, 30, 0])])), ALWAYS);
        let without = |slot| Some(UnixNanos(1)).filter(|_| slot != Slot(7));
        parts.advance(&uses(&times(&[(NODE, [21, 0, 0, 0]), (8, [0; 4])])), without);
        assert_eq!(totals(&parts), [(NODE, 0, 51), (8, 30, 0)]);
    }

    proptest! {
        #[test]
        fn no_total_falls_and_nothing_counts_twice(intervals in proptest::collection::vec(uniform3(uniform4(0_u64..1000)), 1..20)) {
            let (mut parts, mut accounted) = (Parts::default(), 0);
            for interval in intervals {
                let before = totals(&parts);
                let growth = times(&[(NODE, interval[0]), (7, interval[1]), (8, interval[2])]);
                parts.advance(&uses(&growth), ALWAYS);
                accounted += interval.iter().map(|times| times[0].cast_signed()).sum::<i64>();
                let after = totals(&parts);
                prop_assert!(before.iter().zip(&after).all(|(before, after)| before.1 <= after.1 && before.2 <= after.2));
                let owed: i64 = parts.0.values().map(Part::owed).sum();
                let all: u64 = after.iter().map(|(_, network, compute)| network + compute).sum();
                prop_assert_eq!(all.cast_signed(), accounted + owed);
            }
        }
    }
}
