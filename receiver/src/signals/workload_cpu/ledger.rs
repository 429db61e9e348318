//! Who used how much CPU time, from sums that the kernel keeps by cgroup.

use std::{collections::BTreeMap, time::Duration};

use super::super::growth::Sums;
use crate::{
    telemetry::UnixNanos,
    workloads::{CgroupId, Slot},
};

/// A workload at one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Where its time is added up.
    pub slot: Slot,
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// The nearest workload around it: its position in the same reading, which is before this one's. `None` for the node.
    pub within: Option<usize>,
    /// CPU time of its cgroup since that was made, with everything below it, living or removed; `None` where it could not
    /// be read.
    pub time: Option<Duration>,
}

/// CPU time by slot, each workload's without the workloads inside it, and the node's without any.
///
/// The sums that it is fed with are read one after another, inner ones first, so at times the parts have grown by more than
/// the whole. Then the outer one owes the difference and does not grow until it has made good for it. All totals together
/// are at any time the whole and what is owed. What could not be read stays with the nearest one around it that could: the
/// rest of a workload that was removed since the reading before, and all of one that lived in between.
#[derive(Debug, Default)]
pub struct Ledger {
    whole: Duration,
    node: Account,
    slots: BTreeMap<Slot, (UnixNanos, Account)>,
    /// Time of every cgroup that could be read last time.
    read: Sums,
}

/// A total that never falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    total: Duration,
    owed: Duration,
}

impl Account {
    /// Adds what a cgroup grew by without what those inside it grew by.
    fn settle(&mut self, change: Change) {
        let owed = self.owed + change.inside;
        self.total += change.growth.saturating_sub(owed);
        self.owed = owed.saturating_sub(change.growth);
    }
}

/// Growth since the reading before.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    growth: Duration,
    inside: Duration,
}

impl Ledger {
    /// Begins with what is there: only what is used from now on counts.
    pub fn new(whole: Duration, usages: &[Usage], start: impl Fn(Slot) -> Option<UnixNanos>) -> Self {
        let mut ledger = Self { whole, ..Self::default() };
        ledger.advance(whole, usages, start);
        ledger
    }

    /// Knows of a cgroup, whoever's, that was there as it began.
    pub fn knows(&mut self, cgroup: Option<CgroupId>) {
        self.read.knows(cgroup);
    }

    /// Adds what was used since the reading before. `whole` is the node's time, `start` says since when a slot counts: one
    /// whose start is another, or that nobody has any more, is forgotten.
    pub fn advance(&mut self, whole: Duration, usages: &[Usage], start: impl Fn(Slot) -> Option<UnixNanos>) {
        self.forget(&start);
        let mut node = Change { growth: whole.saturating_sub(self.whole), inside: Duration::ZERO };
        let mut inside = vec![Duration::ZERO; usages.len()];
        let mut changes: BTreeMap<Slot, (UnixNanos, Change)> = BTreeMap::new();
        for (n, usage) in usages.iter().enumerate().rev() {
            let growth = match start(usage.slot).filter(|_| usage.time.is_some()) {
                Some(start) => {
                    // Of what cannot be told, only what those inside it used leaves the one around it.
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
        // What it owes was others' time: it stays owed.
        self.node.owed += gone.map(|(_, (_, account))| account.owed).sum::<Duration>();
    }

    /// The node's total.
    pub const fn node(&self) -> Duration {
        self.node.total
    }

    /// The total of every other slot, and since when it counts.
    pub fn slots(&self) -> impl Iterator<Item = (Slot, UnixNanos, Duration)> {
        self.slots.iter().map(|(slot, (start, account))| (*slot, *start, account.total))
    }
}

#[cfg(test)]
mod tests;
