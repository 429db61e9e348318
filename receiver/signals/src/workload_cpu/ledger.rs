//! The CPU time of each workload, derived from the kernel's cumulative CPU time of cgroups.

use std::{collections::BTreeMap, time::Duration};

use super::super::growth::Sums;
use crate::{
    telemetry::UnixNanos,
    workloads::{CgroupId, Slot},
};

/// A workload at one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The slot that its time counts for.
    pub slot: Slot,
    /// The cgroup of the workload.
    pub cgroup: CgroupId,
    /// The position, in the same reading, of the nearest workload that contains this one. It precedes this position.
    /// `None` for the node.
    pub within: Option<usize>,
    /// CPU time of the cgroup since its creation, including all living and removed descendants. `None` if it could not
    /// be read.
    pub time: Option<Duration>,
}

/// CPU time by slot. A workload excludes nested workloads, and the node excludes all workloads.
///
/// The values are read one after another, inner cgroups first. Therefore the parts may have grown by more than the
/// whole. The outer cgroup then records the difference as a debt, and its total does not grow until later growth has
/// paid the debt. The sum of all totals always equals the whole plus the debts.
///
/// Time of an unreadable cgroup counts for the nearest readable cgroup that contains it. This applies to a workload
/// that was removed since the previous reading, and to a workload that existed only between two readings.
/// rest of a workload that was removed since the reading before, and all of one that lived in between.
#[derive(Debug, Default)]
pub struct Ledger {
    whole: Duration,
    node: Account,
    slots: BTreeMap<Slot, (UnixNanos, Account)>,
    /// The values of every cgroup at the previous reading.
    read: Sums,
}

/// A total that never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    total: Duration,
    owed: Duration,
}

impl Account {
    /// Adds the growth of a cgroup minus the growth of nested workloads.
    fn settle(&mut self, change: Change) {
        let owed = self.owed + change.inside;
        self.total += change.growth.saturating_sub(owed);
        self.owed = owed.saturating_sub(change.growth);
    }
}

/// Growth since the previous reading.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    growth: Duration,
    inside: Duration,
}

impl Ledger {
    /// Starts with the current values as the baseline.
    pub fn new(whole: Duration, usages: &[Usage], start: impl Fn(Slot) -> Option<UnixNanos>) -> Self {
        let mut ledger = Self { whole, ..Self::default() };
        ledger.advance(whole, usages, start);
        ledger
    }

    /// Records the id of a cgroup that existed at the start.
    pub fn knows(&mut self, cgroup: Option<CgroupId>) {
        self.read.knows(cgroup);
    }

    /// Adds the growth since the previous reading. `whole` is the node's time. `start` returns the start time of a
    /// slot. Slots with a changed or missing start time are removed.
    pub fn advance(&mut self, whole: Duration, usages: &[Usage], start: impl Fn(Slot) -> Option<UnixNanos>) {
        self.forget(&start);
        let mut node = Change { growth: whole.saturating_sub(self.whole), inside: Duration::ZERO };
        let mut inside = vec![Duration::ZERO; usages.len()];
        let mut changes: BTreeMap<Slot, (UnixNanos, Change)> = BTreeMap::new();
        for (n, usage) in usages.iter().enumerate().rev() {
            let growth = match start(usage.slot).filter(|_| usage.time.is_some()) {
                Some(start) => {
                    // If the growth of a cgroup is unknown, only the growth of nested workloads is subtracted from its
                    // container.
                    let growth = usage.time.and_then(|time| self.read.growth(usage.cgroup, time)).unwrap_or(inside[n]);
                    let (_, change) = changes.entry(usage.slot).or_insert((start, Change::default()));
                    change.growth += growth;
                    change.inside += inside[n];
                    growth
                }
                None => inside[n],
            };
            *usage.within.map_or(&mut node.inside, |outer| &mut inside[outer]) += growth;
        }
        for (slot, (start, change)) in changes {
            self.slots.entry(slot).or_insert((start, Account::default())).1.settle(change);
        }
        self.node.settle(node);
        self.whole = self.whole.max(whole);
        self.read.keep(usages.iter().map(|usage| (usage.cgroup, usage.time)));
    }

    fn forget(&mut self, start: impl Fn(Slot) -> Option<UnixNanos>) {
        let gone = self.slots.extract_if(.., |slot, (since, _)| start(*slot) != Some(*since));
        // The debt of a removed slot is time of other slots, so the node takes over the debt.
        self.node.owed += gone.map(|(_, (_, account))| account.owed).sum::<Duration>();
    }

    /// Returns the total of the node.
    pub const fn node(&self) -> Duration {
        self.node.total
    }

    /// Returns the total and the start time of every other slot.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos, Duration)> {
        self.slots.iter().map(|(slot, (start, account))| (*slot, *start, account.total))
    }
}

#[cfg(test)]
mod tests;
