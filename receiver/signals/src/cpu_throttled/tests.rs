//! The complete signal on real cgroups with real quotas, in every mounted hierarchy.

use std::{
    ops::RangeInclusive,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::testing::{self, START},
    *,
};
use crate::workloads::{
    Identity, Workload,
    testing::{Tree, hierarchies, skip},
};

/// Minimum throttled time.
const HELD: Duration = Duration::from_millis(150);

/// A hierarchy with a test cgroup that has a quota.
struct Bench {
    hierarchy: Hierarchy,
    tree: Tree,
}

/// Returns a bench for each hierarchy with quotas.
fn benches() -> impl Iterator<Item = Bench> {
    hierarchies().into_iter().filter_map(|hierarchy| {
        let tree = Tree::create(&hierarchy)?;
        match tree.limit(&tree.path) {
            Ok(()) => Some(Bench { hierarchy, tree }),
            Err(error) => {
                skip(&format!("CPU quotas on cgroup {:?}: {error}", hierarchy.version()));
                assert!(hierarchy.quotas().is_err(), "the signal would be on");
                None
            }
        }
    })
}

impl Bench {
    fn workload(&self, slot: u16, path: &CgroupPath) -> Workload {
        Workload::new(Slot(slot), Identity::Cgroup, self.hierarchy.id(path).unwrap(), path.clone(), START)
    }

    /// Returns the kernel's throttled time of a cgroup.
    fn kernels(&self, path: &CgroupPath) -> Duration {
        self.hierarchy.throttled(self.hierarchy.id(path).unwrap(), path).unwrap().unwrap_or_default()
    }

    /// Runs a busy loop in a cgroup until the kernel reports [`HELD`] of throttled time for its quota.
    fn hold(&self, inside: &CgroupPath, quota: &CgroupPath) {
        let (start, from, _burner) = (Instant::now(), self.kernels(quota), self.tree.burn(inside));
        while self.kernels(quota) < from + HELD {
            assert!(start.elapsed() < Duration::from_secs(60), "{quota} held nothing");
            thread::yield_now();
        }
    }

    fn signal(&self, workloads: &Workloads) -> CpuThrottled {
        CpuThrottled::new(Files::local(self.hierarchy.clone()), workloads, START).unwrap()
    }

    /// Returns the range of a quota's throttled time beyond `from`, around a reading.
    fn around(
        &self,
        path: &CgroupPath,
        from: Duration,
        signal: &mut CpuThrottled,
        workloads: &Workloads,
    ) -> (RangeInclusive<Duration>, BTreeMap<u16, Duration>) {
        let before = self.kernels(path) - from;
        let found = totals(signal, workloads);
        (before..=self.kernels(path) - from, found)
    }
}

/// Returns the exported values, by slot.
fn totals(signal: &mut CpuThrottled, workloads: &Workloads) -> BTreeMap<u16, Duration> {
    testing::totals(signal, workloads, &THROTTLED_TIME)
}

#[test]
fn a_quota_counts_from_the_start_and_only_for_its_own_cgroup() {
    for bench in benches() {
        let outer = bench.tree.path.clone();
        let inner = bench.tree.make(b"inner");
        bench.hold(&inner, &outer);
        let workloads = Workloads::with(vec![bench.workload(2, &outer), bench.workload(3, &inner)]);
        let from = bench.kernels(&outer);
        let mut signal = bench.signal(&workloads);
        let slack = bench.kernels(&outer) - from;
        bench.hold(&inner, &outer);
        let (held, found) = bench.around(&outer, from, &mut signal, &workloads);
        assert!(held.start().saturating_sub(slack) <= found[&2] && found[&2] <= *held.end(), "{found:?} {held:?}");
        assert!(found[&2] + slack >= HELD, "{found:?}");
        assert_eq!(found.len(), 1, "nobody else has a quota: {found:?}");
        assert_eq!(signal.unread, 0);
    }
}

#[test]
fn quotas_of_containing_cgroups_count_for_the_node() {
    for bench in benches() {
        let inner = bench.tree.make(b"inner");
        let workloads = Workloads::with(vec![bench.workload(2, &inner)]);
        let mut signal = bench.signal(&workloads);
        bench.hold(&inner, &bench.tree.path);
        let (held, found) = bench.around(&bench.tree.path, Duration::ZERO, &mut signal, &workloads);
        assert!(held.contains(&found[&0]) && found.len() == 1, "{found:?} {held:?}");
    }
}

#[test]
fn a_new_cgroup_counts_from_its_creation_and_keeps_its_total_after_removal() {
    for bench in benches() {
        let outer = bench.tree.path.clone();
        let alone = Workloads::with(vec![bench.workload(2, &outer)]);
        let mut signal = bench.signal(&alone);
        let born = bench.tree.make(b"born");
        bench.tree.limit(&born).unwrap();
        bench.hold(&born, &born);
        let both = Workloads::with(vec![bench.workload(2, &outer), bench.workload(3, &born)]);
        let (held, found) = bench.around(&born, Duration::ZERO, &mut signal, &both);
        assert!(held.contains(&found[&3]), "{found:?} {held:?}");
        bench.tree.remove(&born);
        assert_eq!(totals(&mut signal, &both)[&3], found[&3], "it still has its slot");
        assert!(!totals(&mut signal, &alone).contains_key(&3));
        assert_eq!(signal.unread, 0, "what is gone is no failure");
    }
}

#[test]
fn hosts_without_quotas_have_an_error_message() {
    let said = |hierarchy| match &caveats(&Host { hierarchy, ..Host::probe(Vec::new()) })[..] {
        [Caveat::Unavailable(reason)] => reason.clone(),
        _ => panic!("it can tell"),
    };
    assert!(said(None).contains("mount -t cgroup2"));
    let folder = tempfile::tempdir().unwrap();
    let Some(v2) = hierarchies().into_iter().find(|hierarchy| hierarchy.version() == crate::workloads::Version::V2)
    else {
        return skip("a hierarchy without the controller `cpu`: cgroup v2 is not mounted");
    };
    assert!(said(Some(v2.moved(folder.path()))).contains("mount -t cgroup -o cpu"));
}
