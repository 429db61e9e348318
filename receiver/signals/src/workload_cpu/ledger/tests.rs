use proptest::prelude::*;

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn usage(slot: u16, cgroup: u64, within: Option<usize>, time: impl Into<Option<u64>>) -> Usage {
    Usage { slot: Slot(slot), cgroup: CgroupId(cgroup), within, time: time.into().map(seconds) }
}

const ALWAYS: fn(Slot) -> Option<UnixNanos> = |_| Some(UnixNanos(1));

/// Returns the totals in seconds: first the node, then the slots.
fn totals(ledger: &Ledger) -> Vec<(u16, u64)> {
    let slots = ledger.slots().map(|(slot, _, total)| (slot.0, total.as_secs()));
    std::iter::once((0, ledger.node().as_secs())).chain(slots).collect()
}

#[test]
fn a_workload_excludes_the_growth_of_nested_workloads() {
    let mut ledger = Ledger::new(seconds(100), &[usage(2, 10, None, 40), usage(3, 11, Some(0), 15)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 0), (2, 0), (3, 0)]);
    ledger.advance(seconds(120), &[usage(2, 10, None, 52), usage(3, 11, Some(0), 20)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 8), (2, 7), (3, 5)]);
}

#[test]
fn workloads_that_share_a_slot_add_up() {
    let overflow =
        |outer, inner, other| [usage(1, 10, None, outer), usage(1, 11, Some(0), inner), usage(1, 12, None, other)];
    let mut ledger = Ledger::new(seconds(0), &overflow(9, 3, 1), ALWAYS);
    ledger.advance(seconds(20), &overflow(15, 7, 4), ALWAYS);
    assert_eq!(totals(&ledger), [(0, 11), (1, 9)]);
}

#[test]
fn new_cgroups_count_from_creation_and_existing_ones_from_their_first_reading() {
    let mut ledger = Ledger::new(seconds(0), &[usage(2, 10, None, 0)], ALWAYS);
    let reading = [usage(2, 10, None, 0), usage(3, 9, None, 50), usage(4, 11, Some(1), 4)];
    ledger.advance(seconds(30), &reading, ALWAYS);
    assert_eq!(totals(&ledger), [(0, 26), (2, 0), (3, 0), (4, 4)]);
    // Without an earlier cgroup for comparison, a new cgroup cannot be recognized.
    let mut ledger = Ledger::new(seconds(0), &[], ALWAYS);
    ledger.advance(seconds(30), &[usage(2, 10, None, 20)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 30), (2, 0)]);
}

#[test]
fn the_first_workload_after_other_cgroups_counts_from_its_creation() {
    let mut ledger = Ledger::new(seconds(0), &[], ALWAYS);
    ledger.knows(Some(CgroupId(9)));
    ledger.advance(seconds(30), &[usage(2, 10, None, 20), usage(3, 8, None, 5)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 10), (2, 20), (3, 0)]);
}

#[test]
fn another_cgroup_in_a_slot_does_not_decrease_its_total() {
    let mut ledger = Ledger::new(seconds(0), &[usage(2, 10, None, 50)], ALWAYS);
    ledger.advance(seconds(9), &[usage(2, 11, None, 3)], |_| Some(UnixNanos(2)));
    assert_eq!(totals(&ledger), [(0, 6), (2, 3)]);
    assert_eq!(ledger.slots().next().unwrap().1, UnixNanos(2));
}

#[test]
fn a_total_stays_until_its_slot_is_released() {
    let mut ledger = Ledger::new(seconds(0), &[usage(2, 10, None, 0)], ALWAYS);
    ledger.advance(seconds(5), &[usage(2, 10, None, 4)], ALWAYS);
    ledger.advance(seconds(7), &[], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 3), (2, 4)]);
    ledger.advance(seconds(8), &[], |_| None);
    assert_eq!(totals(&ledger), [(0, 4)]);
}

#[test]
fn a_workload_that_was_never_read_counts_for_its_container() {
    let reading = |outer, inner| [usage(2, 10, None, outer), usage(3, 11, Some(0), inner)];
    let mut ledger = Ledger::new(seconds(0), &reading(Some(0), None), ALWAYS);
    ledger.advance(seconds(9), &reading(Some(8), None), ALWAYS);
    assert_eq!(totals(&ledger), [(0, 1), (2, 8)]);
    // The outer cgroup cannot be read, so the growth of the inner cgroup is subtracted from the node.
    ledger.advance(seconds(9), &reading(Some(8), Some(5)), ALWAYS);
    ledger.advance(seconds(19), &reading(None, Some(9)), ALWAYS);
    assert_eq!(totals(&ledger), [(0, 7), (2, 8), (3, 4)]);
}

#[test]
fn growth_restarts_after_a_reset() {
    let mut ledger = Ledger::new(seconds(0), &[usage(2, 10, None, 50)], ALWAYS);
    ledger.advance(seconds(9), &[usage(2, 10, None, 3)], ALWAYS);
    ledger.advance(seconds(12), &[usage(2, 10, None, 5)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 10), (2, 2)]);
}

#[test]
fn a_debt_is_paid_by_later_growth() {
    let mut ledger = Ledger::new(seconds(0), &[usage(2, 10, None, 0)], ALWAYS);
    ledger.advance(seconds(5), &[usage(2, 10, None, 7)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 0), (2, 7)]);
    ledger.advance(seconds(10), &[usage(2, 10, None, 8)], ALWAYS);
    assert_eq!(totals(&ledger), [(0, 2), (2, 8)]);
}

/// A cgroup of a simulated machine.
#[derive(Debug)]
struct Cgroup {
    id: u64,
    parent: Option<u64>,
    /// The kernel's CPU time of the cgroup.
    time: u64,
    slot: Option<u16>,
    /// Time since the last reading in the cgroup and in its descendants that are no workloads.
    unread: u64,
}

/// A simulated machine that records the correct attribution of every nanosecond.
#[derive(Debug, Default)]
struct Machine {
    /// In order of creation.
    cgroups: Vec<Cgroup>,
    made: u64,
    whole: u64,
    unread: u64,
    /// The correct totals of slots.
    truth: BTreeMap<u16, u64>,
}

impl Machine {
    fn position(&self, id: u64) -> usize {
        self.cgroups.iter().position(|cgroup| cgroup.id == id).unwrap()
    }

    /// Returns a cgroup and its ancestors, inner cgroups first.
    fn around(&self, from: Option<u64>) -> Vec<usize> {
        let of = |id: u64| self.position(id);
        std::iter::successors(from.map(of), |n| self.cgroups[*n].parent.map(of)).collect()
    }

    fn pick(&self, choice: u8) -> Option<u64> {
        // The position after the last cgroup selects the root.
        self.cgroups.get(usize::from(choice) % (self.cgroups.len() + 1)).map(|cgroup| cgroup.id)
    }

    fn belongs(&mut self, around: &[usize], time: u64) {
        match around.iter().find(|n| self.cgroups[**n].slot.is_some()) {
            Some(n) => self.cgroups[*n].unread += time,
            None => self.unread += time,
        }
    }

    fn use_time(&mut self, choice: u8, time: u64) {
        let around = self.around(self.pick(choice));
        around.iter().for_each(|n| self.cgroups[*n].time += time);
        self.whole += time;
        self.belongs(&around, time);
    }

    fn make(&mut self, choice: u8, slot: Option<u16>) {
        let parent = self.pick(choice);
        self.made += 1;
        self.cgroups.push(Cgroup { id: self.made, parent, time: 0, slot, unread: 0 });
    }

    fn remove(&mut self, choice: u8) {
        let Some(id) = self.pick(choice) else { return };
        if !self.cgroups.iter().any(|cgroup| cgroup.parent == Some(id)) {
            let gone = self.cgroups.remove(self.position(id));
            let around = self.around(gone.parent);
            self.belongs(&around, gone.unread);
        }
    }

    /// Reads every workload, inner ones first, and then the whole. Some time is used after each reading.
    fn read(&mut self, meanwhile: &[(u8, u64)], unreadable: &[u8]) -> (u64, Vec<Usage>) {
        let ids: Vec<u64> =
            self.cgroups.iter().filter(|cgroup| cgroup.slot.is_some()).map(|cgroup| cgroup.id).collect();
        let mut meanwhile = meanwhile.iter();
        let mut usages = Vec::new();
        for (n, id) in ids.iter().enumerate().rev() {
            let cgroup = &self.cgroups[self.position(*id)];
            let outer = self.around(cgroup.parent).into_iter().map(|n| self.cgroups[n].id).find(|id| ids.contains(id));
            usages.push(Usage {
                slot: Slot(cgroup.slot.unwrap()),
                cgroup: CgroupId(*id),
                within: outer.and_then(|outer| ids.iter().position(|id| *id == outer)),
                time: (!unreadable.iter().any(|odd| usize::from(*odd) == n)).then(|| Duration::from_nanos(cgroup.time)),
            });
            if let Some((choice, time)) = meanwhile.next() {
                self.use_time(*choice, *time);
            }
        }
        for cgroup in &mut self.cgroups {
            if let Some(slot) = cgroup.slot {
                *self.truth.entry(slot).or_default() += std::mem::take(&mut cgroup.unread);
            }
        }
        *self.truth.entry(0).or_default() += std::mem::take(&mut self.unread);
        usages.reverse();
        (self.whole, usages)
    }
}

/// The events between two readings and during the second reading.
#[derive(Clone, Debug)]
struct Interval {
    /// Type, target and amount of each event.
    events: Vec<(u8, u8, u64)>,
    meanwhile: Vec<(u8, u64)>,
    unreadable: Vec<u8>,
    /// Slots that are released.
    freed: Vec<u16>,
}

fn interval(skew: usize) -> impl Strategy<Value = Interval> {
    (
        prop::collection::vec((0..8_u8, any::<u8>(), 0..1_000_u64), 0..20),
        prop::collection::vec((any::<u8>(), 0..1_000_u64), 0..=skew * 8),
        prop::collection::vec(0..20_u8, 0..=skew * 2),
        prop::collection::vec(2..12_u16, 0..=skew * 2),
    )
        .prop_map(|(events, meanwhile, unreadable, freed)| Interval { events, meanwhile, unreadable, freed })
}

impl Machine {
    fn live(&mut self, events: &[(u8, u8, u64)]) {
        for (what, choice, much) in events {
            match what {
                0..4 => self.use_time(*choice, *much),
                // One in three cgroups is no workload, and slots are shared.
                4..6 => self.make(*choice, (*much % 3 > 0).then_some(u16::try_from(1 + *much % 11).unwrap())),
                _ => self.remove(*choice),
            }
        }
    }
}

fn owed(ledger: &Ledger) -> Duration {
    ledger.node.owed + ledger.slots.values().map(|(_, account)| account.owed).sum::<Duration>()
}

proptest! {
    #[test]
    fn all_totals_are_the_whole_and_what_is_owed_and_none_falls(
        intervals in prop::collection::vec(interval(1), 1..20)
    ) {
        let mut machine = Machine::default();
        machine.make(0, Some(2));
        let (from, usages) = machine.read(&[], &[]);
        let mut starts: BTreeMap<u16, u64> = BTreeMap::new();
        let mut ledger = Ledger::new(Duration::from_nanos(from), &usages, ALWAYS);
        let (mut forgotten, mut last) = (Duration::ZERO, BTreeMap::new());
        for interval in intervals {
            machine.live(&interval.events);
            for slot in &interval.freed {
                *starts.entry(*slot).or_insert(1) += 1;
                forgotten += last.remove(&Slot(*slot)).unwrap_or_default();
            }
            let (whole, usages) = machine.read(&interval.meanwhile, &interval.unreadable);
            let start = |slot: Slot| Some(UnixNanos(starts.get(&slot.0).copied().unwrap_or(1)));
            ledger.advance(Duration::from_nanos(whole), &usages, start);
            let totals: BTreeMap<Slot, Duration> = std::iter::once((Slot::NODE, ledger.node()))
                .chain(ledger.slots().map(|(slot, _, total)| (slot, total)))
                .collect();
            let sum = totals.values().sum::<Duration>() + forgotten;
            prop_assert_eq!(sum, Duration::from_nanos(whole - from) + owed(&ledger));
            for (slot, total) in &last {
                prop_assert!(totals.get(slot) >= Some(total), "{:?} fell", slot);
            }
            last = totals;
        }
    }

    #[test]
    fn readings_of_one_moment_give_everybody_what_is_theirs(intervals in prop::collection::vec(interval(0), 1..20)) {
        let mut machine = Machine::default();
        machine.make(0, Some(2));
        let (whole, usages) = machine.read(&[], &[]);
        machine.truth.clear();
        let mut ledger = Ledger::new(Duration::from_nanos(whole), &usages, ALWAYS);
        for interval in intervals {
            machine.live(&interval.events);
            let (whole, usages) = machine.read(&[], &[]);
            ledger.advance(Duration::from_nanos(whole), &usages, ALWAYS);
            prop_assert_eq!(owed(&ledger), Duration::ZERO);
            let totals = std::iter::once((0, ledger.node())).chain(ledger.slots().map(|(slot, _, total)| (slot.0, total)));
            for (slot, total) in totals {
                let truth = machine.truth.get(&slot).copied().unwrap_or_default();
                prop_assert_eq!(total, Duration::from_nanos(truth), "slot {}", slot);
            }
        }
    }
}
