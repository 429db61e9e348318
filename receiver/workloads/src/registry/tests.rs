//! The sum rule through arrivals, departures, folding, deliveries and reuse of slots.

mod attacks;

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use undercurrent_ebpf::abi::workload::{NAMESPACE, OWNERS};

use super::*;

struct Fake(Vec<AtomicU64>);

impl Table for Fake {
    fn entries(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A kernel that counts events by slot, and a collector that keeps the newest total of every series.
struct World {
    registry: Registry,
    cells: BTreeMap<Slot, u64>,
    /// Totals by slot and start time, which identify a series.
    collected: BTreeMap<(Slot, UnixNanos), u64>,
    ended: BTreeMap<(Slot, UnixNanos), u64>,
    events: u64,
    clock: u64,
}

impl World {
    fn new(limit: u16) -> Self {
        let table = Box::new(Fake((0..OWNERS).map(|_| AtomicU64::new(0)).collect()));
        Self {
            registry: Registry::new(table, limit, Arc::new(Resource { attributes: Attributes::new() })),
            cells: BTreeMap::new(),
            collected: BTreeMap::new(),
            ended: BTreeMap::new(),
            events: 0,
            clock: 1,
        }
    }

    fn now(&mut self) -> UnixNanos {
        self.clock += 1;
        UnixNanos(self.clock)
    }

    /// Counts an event by the table, as an eBPF program does.
    fn event(&mut self, id: u64) {
        let slot = self.registry.owners.slot(id);
        *self.cells.entry(slot.unwrap_or(Slot::NODE)).or_default() += 1;
        self.events += 1;
    }

    /// One tick: a snapshot, delivered to the collector or not.
    fn tick(&mut self, arrives: bool) {
        for slot in self.registry.rested() {
            self.cells.remove(&slot);
        }
        let time = self.now();
        let mut series: Vec<((Slot, UnixNanos), u64)> = [Slot::NODE, Slot::OVERFLOW]
            .into_iter()
            .map(|slot| ((slot, UnixNanos(0)), self.cells.get(&slot).copied().unwrap_or(0)))
            .collect();
        for workload in self.registry.iter().filter(|workload| workload.slot != Slot::OVERFLOW) {
            let key = (workload.slot, workload.start);
            match workload.stage {
                Stage::Expiring(_) if arrives => {
                    if let Some(total) = self.collected.remove(&key) {
                        // A series that goes on after its end begins no new sum.
                        self.ended.insert(key, total);
                    }
                }
                Stage::Expiring(_) => {}
                _ => series.push((key, self.cells.get(&workload.slot).copied().unwrap_or(0))),
            }
        }
        self.registry.taken(time);
        if arrives {
            for (key, total) in series {
                self.ended.remove(&key);
                self.collected.insert(key, total);
            }
            self.registry.delivered(time);
        }
    }

    fn total(&self) -> u64 {
        self.collected.values().chain(self.ended.values()).sum()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Appear(u64),
    Vanish(u64),
    Event(u64, u64),
    Tick(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (2_u64..60).prop_map(Step::Appear),
        2 => (2_u64..60).prop_map(Step::Vanish),
        5 => (1_u64..70, 1_u64..20).prop_map(|(id, count)| Step::Event(id, count)),
        3 => prop::bool::weighted(0.7).prop_map(Step::Tick),
    ]
}

proptest! {
    #[test]
    fn every_event_stands_once_however_workloads_come_and_go(steps in prop::collection::vec(step(), 0..400), limit in 1_u16..12) {
        let mut world = World::new(limit);
        world.registry.appeared(Cgroup { id: CgroupId(1), path: CgroupPath::root() }, UnixNanos(0));
        for step in steps {
            match step {
                Step::Appear(n) => {
                    let now = world.now();
                    // Every third cgroup is a child of the previous cgroup, and belongs to its workload.
                    // Every fifth is a user's, who has a share of the slots.
                    let path = match n {
                        n if n % 3 == 0 => format!("/w{}/child{n}", n - 1),
                        n if n % 5 == 0 => format!("/user.slice/user-7.slice/session-{n}.scope"),
                        n => format!("/w{n}"),
                    };
                    world.registry.appeared(Cgroup { id: CgroupId(n), path: CgroupPath::new(path.as_bytes()) }, now);
                }
                Step::Vanish(n) => world.registry.vanished(CgroupId(n)),
                Step::Event(id, count) => (0..count).for_each(|_| world.event(id)),
                Step::Tick(arrives) => world.tick(arrives),
            }
            let taken: Vec<Slot> = world.registry.iter().map(|workload| workload.slot).filter(|slot| *slot != Slot::OVERFLOW).collect();
            let distinct: std::collections::BTreeSet<_> = taken.iter().collect();
            prop_assert_eq!(taken.len(), distinct.len(), "two workloads with one slot");
            prop_assert!(taken.len() <= usize::from(limit));
        }
        // The remaining deliveries arrive.
        for _ in 0..4 {
            world.tick(true);
        }
        prop_assert_eq!(world.total(), world.events);
    }
}

fn appear(world: &mut World, id: u64, path: &str) {
    let now = world.now();
    world.registry.appeared(Cgroup { id: CgroupId(id), path: CgroupPath::new(path.as_bytes()) }, now);
}

#[test]
fn admission_is_first_come_and_sticky() {
    let mut world = World::new(2);
    for (id, path) in [(2, "/a"), (3, "/b"), (4, "/c")] {
        appear(&mut world, id, path);
    }
    let slot = |world: &World, id| world.registry.get(CgroupId(id)).map(|workload| workload.slot);
    assert_eq!([2, 3, 4].map(|id| slot(&world, id)), [Some(Slot(2)), Some(Slot(3)), Some(Slot::OVERFLOW)]);
    world.registry.vanished(CgroupId(2));
    world.tick(true);
    appear(&mut world, 5, "/d");
    assert_eq!(slot(&world, 5), Some(Slot::OVERFLOW), "its totals are delivered, its end is not");
    world.tick(true);
    world.tick(true);
    appear(&mut world, 6, "/e");
    assert_eq!(slot(&world, 6), Some(Slot(2)));
    assert_eq!(slot(&world, 4), Some(Slot::OVERFLOW), "who was folded stays so");
}

#[test]
fn who_is_started_again_counts_on_in_the_same_slot() {
    let mut world = World::new(4);
    appear(&mut world, 2, "/a");
    let start = world.registry.get(CgroupId(2)).map(|workload| workload.start);
    world.event(2);
    world.registry.vanished(CgroupId(2));
    world.tick(true);
    appear(&mut world, 9, "/a");
    world.event(9);
    let again = world.registry.get(CgroupId(9)).expect("it is there");
    assert_eq!((again.slot, Some(again.start), again.stage), (Slot(2), start, Stage::Present));
    assert_eq!(world.registry.iter().count(), 1, "one series has one workload");
    assert_eq!(world.cells.get(&Slot(2)), Some(&2));
}

#[test]
fn what_has_come_and_gone_leaves_nothing_behind() {
    let mut world = World::new(4);
    let docker = |n: u64| format!("/docker/{n:064x}");
    appear(&mut world, 1, "/docker");
    for n in 2..1000 {
        appear(&mut world, 2 * n, &docker(n));
        appear(&mut world, 2 * n + 1, &format!("{}/inside", docker(n)));
        world.registry.in_namespace(CgroupId(2 * n), n as u32);
        world.event(2 * n + 1);
        // Half of the workloads lose the events of their child cgroups.
        if n % 2 == 0 {
            world.registry.vanished(CgroupId(2 * n + 1));
        }
        world.registry.vanished(CgroupId(2 * n));
        (0..3).for_each(|_| world.tick(true));
    }
    let registry = &world.registry;
    assert_eq!((registry.cgroups.len(), registry.owners.keys()), (1, 1));
    assert_eq!((registry.by_path.len(), registry.workloads.len(), registry.by_slot.len()), (0, 0, 0));
    assert_eq!((registry.by_instance.len(), registry.by_namespace.len()), (0, 0));
    assert!(registry.entry_quotas.is_empty() && registry.slot_quotas.is_empty());
    assert_eq!(registry.counts(), Counts::default());
    assert_eq!(world.total(), world.events);
}

#[test]
fn a_slot_is_not_free_while_nobody_delivers() {
    let mut world = World::new(1);
    appear(&mut world, 2, "/a");
    world.registry.vanished(CgroupId(2));
    for _ in 0..10 {
        world.tick(false);
    }
    appear(&mut world, 3, "/b");
    assert_eq!(world.registry.get(CgroupId(3)).map(|workload| workload.slot), Some(Slot::OVERFLOW));
    for _ in 0..3 {
        world.tick(true);
    }
    appear(&mut world, 4, "/c");
    assert_eq!(world.registry.get(CgroupId(4)).map(|workload| workload.slot), Some(Slot(2)));
}

#[test]
fn a_slot_is_free_soon_after_the_clock_was_set_back() {
    for ticks_before in [1, 2] {
        let mut world = World::new(1);
        world.clock = 1_000_000;
        appear(&mut world, 2, "/a");
        world.registry.vanished(CgroupId(2));
        // The last totals are taken, and for the second time also their end.
        for nth in 1..=ticks_before {
            world.tick(nth < ticks_before);
        }
        world.clock = 1000;
        for _ in 0..3 {
            world.tick(true);
        }
        appear(&mut world, 3, "/b");
        assert_eq!(world.registry.get(CgroupId(3)).map(|workload| workload.slot), Some(Slot(2)));
    }
}

/// In a complete scan, every missing cgroup has been removed.
fn all_missing(_: CgroupId, _: &CgroupPath) -> bool {
    true
}

/// A flood of cgroups elsewhere must not end the series of a running workload.
#[test]
fn a_scan_that_was_cut_ends_only_what_has_vanished() {
    let mut world = World::new(8);
    let cgroup = |id, path: &str| Cgroup { id: CgroupId(id), path: CgroupPath::new(path.as_bytes()) };
    let now = UnixNanos(9);
    let there = vec![cgroup(1, "/"), cgroup(2, "/running"), cgroup(3, "/removed")];
    assert_eq!(world.registry.reconcile(there, all_missing, now), [CgroupId(2), CgroupId(3)]);
    let has_vanished = |id, _: &CgroupPath| id == CgroupId(3);
    assert_eq!(world.registry.reconcile(vec![cgroup(1, "/")], has_vanished, now), []);
    let stage = |id| world.registry.get(CgroupId(id)).map(|workload| workload.stage);
    assert_eq!((stage(2), stage(3)), (Some(Stage::Present), Some(Stage::Gone)));
}

#[test]
fn a_scan_finds_what_was_missed_and_misses_what_has_gone() {
    let mut world = World::new(8);
    let cgroup = |id, path: &str| Cgroup { id: CgroupId(id), path: CgroupPath::new(path.as_bytes()) };
    let now = UnixNanos(9);
    world.registry.appeared(cgroup(7, "/lost/child"), now);
    assert_eq!(world.registry.counts().surprises, 1);
    let new =
        world.registry.reconcile(vec![cgroup(1, "/"), cgroup(6, "/lost"), cgroup(7, "/lost/child")], all_missing, now);
    assert_eq!(new, [CgroupId(6)]);
    let again = world.registry.reconcile(vec![cgroup(1, "/"), cgroup(8, "/lost")], all_missing, now);
    assert_eq!(again, [CgroupId(8)], "the same path, made anew, is the same workload");
    assert_eq!(world.registry.get(CgroupId(6)).map(|workload| workload.stage), None);
    assert_eq!(world.registry.get(CgroupId(8)).map(|workload| workload.stage), Some(Stage::Present));
}

#[test]
fn a_namespace_belongs_to_whom_it_was_found_with_first() {
    let mut world = World::new(8);
    appear(&mut world, 2, "/a");
    appear(&mut world, 3, "/b");
    world.registry.in_namespace(CgroupId(2), 4_026_531_999);
    world.registry.in_namespace(CgroupId(3), 4_026_531_999);
    world.event(NAMESPACE | 4_026_531_999);
    assert_eq!(world.cells.get(&Slot(2)), Some(&1));
    world.registry.vanished(CgroupId(2));
    world.registry.in_namespace(CgroupId(3), 4_026_531_999);
    world.event(NAMESPACE | 4_026_531_999);
    assert_eq!(world.cells.get(&Slot(3)), Some(&1));
}

/// The kernel reuses the inode of a namespace that has ended.
#[test]
fn a_reused_namespace_goes_to_the_workload_that_lives_there() {
    const REUSED: u32 = 4_026_532_100;
    let mut world = World::new(8);
    appear(&mut world, 2, "/a");
    appear(&mut world, 3, "/b");
    world.registry.in_namespace(CgroupId(2), REUSED);
    let claims: Vec<(CgroupId, u32)> =
        world.registry.claims().map(|(workload, inode)| (workload.cgroup, inode)).collect();
    assert_eq!(claims, [(CgroupId(2), REUSED)]);
    assert_eq!(world.registry.claimant(REUSED).map(|workload| workload.cgroup), Some(CgroupId(2)));

    // A late answer about another claim releases nothing.
    world.registry.release_namespace(CgroupId(2), REUSED + 1);
    world.registry.release_namespace(CgroupId(3), REUSED);
    world.event(NAMESPACE | u64::from(REUSED));
    assert_eq!(world.cells.get(&Slot(2)), Some(&1));

    world.registry.release_namespace(CgroupId(2), REUSED);
    world.event(NAMESPACE | u64::from(REUSED));
    assert_eq!(world.cells.get(&Slot::NODE), Some(&1), "nobody's until it is claimed again");
    world.registry.in_namespace(CgroupId(3), REUSED);
    world.event(NAMESPACE | u64::from(REUSED));
    assert_eq!(world.cells.get(&Slot(3)), Some(&1));

    // The old claimant goes, and takes nothing with it.
    world.registry.vanished(CgroupId(2));
    world.event(NAMESPACE | u64::from(REUSED));
    assert_eq!(world.cells.get(&Slot(3)), Some(&2));
    assert_eq!(world.registry.by_namespace.len(), 1);
}
