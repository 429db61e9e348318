//! The complete signal on real cgroups, in every mounted hierarchy.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::testing::{self, START},
    *,
};
use crate::workloads::{
    CgroupId, CgroupPath, Files, Identity, Mounts, Workload,
    testing::{Tree, hierarchies, skip},
};

/// Minimum CPU time of a busy loop.
const BURN: Duration = Duration::from_millis(200);

/// A hierarchy with a test cgroup.
struct Bench {
    hierarchy: Hierarchy,
    tree: Tree,
}

/// Returns a bench for each hierarchy.
fn benches() -> impl Iterator<Item = Bench> {
    hierarchies().into_iter().filter_map(|hierarchy| Some(Bench { tree: Tree::create(&hierarchy)?, hierarchy }))
}

fn signal(hierarchy: Hierarchy, workloads: &Workloads) -> WorkloadCpu {
    let times = CpuTimes::new(Files::local(hierarchy), Busy::new(false), workloads).unwrap();
    WorkloadCpu::new(times.shared(), None, START)
}

impl Bench {
    fn workload(&self, slot: u16, path: &CgroupPath) -> Workload {
        let id = self.hierarchy.id(path).unwrap();
        Workload::new(Slot(slot), Identity::Cgroup, id, path.clone(), START)
    }

    /// Returns the kernel's CPU time of a cgroup and its descendants.
    fn usage(&self, path: &CgroupPath) -> Duration {
        self.hierarchy.usage(self.hierarchy.id(path).unwrap(), path).unwrap()
    }

    /// Runs a busy loop in a cgroup until the kernel reports [`BURN`] of CPU time.
    fn burn(&self, path: &CgroupPath) {
        let (start, from, _burner) = (Instant::now(), self.usage(path), self.tree.burn(path));
        while self.usage(path) < from + BURN {
            assert!(start.elapsed() < Duration::from_secs(60), "{path} got no CPU time");
            thread::yield_now();
        }
    }

    fn signal(&self, workloads: &Workloads) -> WorkloadCpu {
        signal(self.hierarchy.clone(), workloads)
    }

    /// Returns the range of a cgroup's CPU time beyond `from`, around an action.
    fn around<T>(
        &self,
        paths: &[&CgroupPath],
        from: &[Duration],
        what: impl FnOnce() -> T,
    ) -> (Vec<RangeInclusive<Duration>>, T) {
        let grown = || paths.iter().zip(from).map(|(path, from)| self.usage(path) - *from).collect::<Vec<_>>();
        let (before, result, after) = (grown(), what(), grown());
        (before.into_iter().zip(after).map(|(before, after)| before..=after).collect(), result)
    }
}

/// Returns the exported values of a new snapshot, by slot.
fn totals(signal: &mut WorkloadCpu, workloads: &Workloads) -> BTreeMap<u16, Duration> {
    signal.times.borrow_mut().expire();
    testing::totals(signal, workloads, &CPU_TIME)
}

#[test]
fn the_parts_add_up_to_the_whole() {
    for bench in benches() {
        let (root, outer) = (CgroupPath::root(), bench.tree.path.clone());
        bench.tree.make(b"between");
        let inner = bench.tree.make(b"between/inner");
        let workloads = Workloads::with(vec![bench.workload(2, &outer), bench.workload(3, &inner)]);
        let mut signal = bench.signal(&workloads);
        let from = [&root, &outer, &inner].map(|path| bench.usage(path));
        bench.burn(&inner);
        bench.burn(&bench.tree.path);
        let (grown, found) = bench.around(&[&root, &outer, &inner], &from, || totals(&mut signal, &workloads));
        assert!(grown[2].contains(&found[&3]), "{found:?} {grown:?}");
        assert!(grown[1].contains(&(found[&2] + found[&3])), "{found:?} {grown:?}");
        assert!(found[&2] >= BURN && found[&3] >= BURN, "{found:?}");
        // The root's value has a different source: timer ticks on version 2, and no interrupts on version 1.
        let (sum, whole) = (found.values().sum::<Duration>().as_secs_f64(), grown[0].end().as_secs_f64());
        assert!((sum - whole).abs() <= 0.2 + 0.2 * whole, "{sum} s, and {whole} s by the kernel");
        let again = totals(&mut signal, &workloads);
        assert!(found.iter().all(|(slot, total)| again[slot] >= *total), "{found:?} {again:?}");
    }
}

#[test]
fn a_new_cgroup_counts_from_its_creation_and_keeps_its_total_after_removal() {
    for bench in benches() {
        let outer = bench.tree.path.clone();
        let alone = Workloads::with(vec![bench.workload(2, &outer)]);
        let mut signal = bench.signal(&alone);
        let born = bench.tree.make(b"born");
        bench.burn(&born);
        let both = Workloads::with(vec![bench.workload(2, &outer), bench.workload(3, &born)]);
        let (usage, found) = bench.around(&[&born], &[Duration::ZERO], || totals(&mut signal, &both));
        assert!(usage[0].contains(&found[&3]), "{found:?} {usage:?}");
        bench.burn(&born);
        let last = bench.usage(&born);
        bench.tree.remove(&born);
        // The cgroup still has its slot. Its usage since the last reading counts for its parent.
        let after = totals(&mut signal, &both);
        assert_eq!(after[&3], found[&3]);
        assert!(after[&2] >= found[&2] + (last - found[&3]), "{found:?} {after:?} {last:?}");
        assert!(!totals(&mut signal, &alone).contains_key(&3));
        assert_eq!(signal.times.borrow().unread(), 0, "what is gone is no failure");
    }
}

#[test]
fn a_path_with_a_new_cgroup_is_not_mistaken_for_the_old_cgroup() {
    for bench in benches() {
        let path = bench.tree.make(b"again");
        let first = Workloads::with(vec![bench.workload(2, &path)]);
        let mut signal = bench.signal(&first);
        bench.burn(&path);
        let found = totals(&mut signal, &first);
        bench.tree.remove(&path);
        bench.tree.make(b"again");
        bench.burn(&path);
        assert_eq!(totals(&mut signal, &first)[&2], found[&2]);
        let second = Workloads::with(vec![bench.workload(3, &path)]);
        let (usage, found) = bench.around(&[&path], &[Duration::ZERO], || totals(&mut signal, &second));
        assert!(usage[0].contains(&found[&3]) && !found.contains_key(&2), "{found:?} {usage:?}");
    }
}

#[test]
fn workloads_beyond_the_limit_add_up() {
    for bench in benches() {
        let paths = [b"one", b"two"].map(|name| bench.tree.make(name));
        let workloads = Workloads::with(paths.iter().map(|path| bench.workload(Slot::OVERFLOW.0, path)).collect());
        let mut signal = bench.signal(&workloads);
        paths.iter().for_each(|path| bench.burn(path));
        let found = totals(&mut signal, &workloads)[&1];
        let used: Duration = paths.iter().map(|path| bench.usage(path)).sum();
        assert!(found >= BURN * 2 && found <= used, "{found:?} {used:?}");
    }
}

#[test]
fn unreadable_cgroups_are_counted() {
    let Some(hierarchy) = Hierarchy::choose(Mounts::read().unwrap()) else {
        return skip("unread CPU time: no cgroups are mounted");
    };
    let folder = tempfile::tempdir().unwrap();
    let path = CgroupPath::new(b"/there");
    std::fs::create_dir_all(folder.path().join("there")).unwrap();
    let hierarchy = hierarchy.moved(folder.path());
    let id = hierarchy.id(&path).unwrap();
    let workload = Workload::new(Slot::FIRST, Identity::Cgroup, id, path, START);
    let gone = Workload::new(Slot(3), Identity::Cgroup, CgroupId(1), workload.path.clone(), START);
    let workloads = Workloads::with(vec![workload, gone]);
    let mut signal = signal(hierarchy, &workloads);
    assert_eq!(totals(&mut signal, &workloads).into_keys().collect::<Vec<_>>(), [0]);
    assert_eq!(signal.times.borrow().unread(), 2);
}

#[test]
fn hosts_without_accounting_have_an_error_message() {
    let host = |hierarchy| Host { hierarchy, ..Host::probe(Vec::new()) };
    let said = |host: &Host| match &caveats(host)[..] {
        [Caveat::Unavailable(reason)] => reason.clone(),
        _ => panic!("it can tell"),
    };
    assert!(said(&host(None)).contains("mount -t cgroup2"));
    let mounts = Mounts::read().unwrap();
    let Some(any) = mounts.cpu.or(mounts.v2) else { return skip("cpu without cpuacct: no cgroups are mounted") };
    let without = Hierarchy::choose(Mounts { cpu: Some(any), ..Mounts::default() });
    assert!(said(&host(without)).contains("mount -t cgroup -o cpuacct"));
}

#[test]
fn the_run_time_of_all_tasks_includes_every_cgroup() {
    for bench in benches() {
        let (files, mut tasks) = (Files::local(bench.hierarchy.clone()), tasks::Tasks::default());
        tasks.read(&files).unwrap();
        let (from, start) = (bench.usage(&bench.tree.path), Instant::now());
        bench.burn(&bench.tree.path);
        let burnt = bench.usage(&bench.tree.path) - from;
        let before = Instant::now();
        let growth = tasks.read(&files).unwrap();
        eprintln!("{growth:?}, read in {:?}", before.elapsed());
        let most = start.elapsed() * u32::try_from(thread::available_parallelism().unwrap().get()).unwrap();
        assert!(growth.complete, "tasks of {:?} are missing", bench.hierarchy.version());
        assert!(growth.time >= burnt && growth.time <= most + BURN / 2, "{growth:?}, not {burnt:?} to {most:?}");
    }
}
