use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;

fn folder(names: &[&[u8]]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        fs::create_dir_all(folder.path().join(OsStr::from_bytes(name))).unwrap();
    }
    folder
}

fn limits(cgroups: usize, depth: usize) -> Limits {
    Limits { cgroups, depth }
}

#[test]
fn every_cgroup_is_found_with_its_inode_parents_first() {
    let folder = folder(&[b"a/b/c", b"a/d", b"odd \xff\n name"]);
    fs::write(folder.path().join("cgroup.procs"), "").unwrap();
    symlink(folder.path(), folder.path().join("a/link")).unwrap();
    let mut scan = v2(folder.path()).scan(Limits::default()).unwrap();
    assert_eq!((scan.beyond, scan.unreadable), (0, 0));
    for (n, cgroup) in scan.cgroups.iter().enumerate() {
        let directory = folder.path().join(OsStr::from_bytes(&cgroup.path.as_bytes()[1..]));
        assert_eq!(cgroup.id.0, fs::metadata(directory).unwrap().ino());
        let above = cgroup.path.ancestor(cgroup.path.names().count().saturating_sub(1));
        assert!(n == 0 || scan.cgroups[..n].iter().any(|earlier| earlier.path == above), "{above}");
    }
    scan.cgroups.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(paths(&scan), ["/", "/a", "/a/b", "/a/b/c", "/a/d", "/odd \\xff\\x0a name"]);
}

#[test]
fn what_is_beyond_the_limits_is_counted() {
    let folder = folder(&[b"a/b/c/d", b"a/e", b"f", b"g"]);
    let hierarchy = v2(folder.path());
    for (limits, found, beyond) in [
        (limits(100, 3), 7, 1),
        (limits(100, 0), 1, 3),
        (limits(4, 64), 4, 2),
        // One is always looked at, or nobody could count the others.
        (limits(0, 64), 1, 3),
    ] {
        let scan = hierarchy.scan(limits).unwrap();
        assert_eq!((scan.cgroups.len(), scan.beyond), (found, beyond), "{limits:?}");
    }
}

#[test]
fn a_cgroup_is_held_until_it_is_removed_or_another_has_its_path() {
    let folder = folder(&[b"a"]);
    let hierarchy = v2(folder.path());
    let path = CgroupPath::new(b"/a");
    let id = hierarchy.id(&path).unwrap();
    assert!(hierarchy.holds(id, &path) && !hierarchy.holds(CgroupId(id.0 + 1), &path));
    fs::remove_dir(folder.path().join("a")).unwrap();
    assert!(!hierarchy.holds(id, &path));
}

#[test]
fn deep_trees_end_at_the_limit() {
    let folder = folder(&[]);
    let mut deepest = folder.path().to_owned();
    deepest.extend(std::iter::repeat_n("d", 500));
    fs::create_dir_all(deepest).unwrap();
    let scan = v2(folder.path()).scan(Limits::default()).unwrap();
    assert_eq!((scan.cgroups.len(), scan.beyond), (65, 1));
}

#[test]
fn vanishing_directories_are_no_error() {
    let folder = folder(&[b"stays/here"]);
    let (stop, root) = (AtomicBool::new(false), folder.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::create_dir_all(root.join("goes/below/deep")).unwrap();
                fs::remove_dir_all(root.join("goes")).unwrap();
            }
        });
        let hierarchy = v2(root);
        let scans: Vec<_> = (0..2000).map(|_| hierarchy.scan(Limits::default())).collect();
        stop.store(true, Ordering::Relaxed);
        for scan in scans {
            let scan = scan.unwrap();
            assert!(scan.cgroups.iter().any(|cgroup| cgroup.path == CgroupPath::new(b"/stays/here")));
            assert_eq!((scan.beyond, scan.unreadable), (0, 0));
        }
    });
}

#[test]
fn a_root_that_is_not_there_is_an_error() {
    let folder = folder(&[]);
    assert!(v2(&folder.path().join("gone")).scan(Limits::default()).is_err());
}

#[test]
fn processes_are_the_cgroups_own_or_those_of_the_next_one_below() {
    let folder = folder(&[b"own", b"outer/empty", b"outer/inner/deep", b"none"]);
    let write = |cgroup: &str, text: &str| fs::write(folder.path().join(cgroup).join("cgroup.procs"), text).unwrap();
    for (cgroup, text) in [("own", "7\n0\n8\n9\n"), ("outer", ""), ("outer/empty", "0\n"), ("none", "")] {
        write(cgroup, text);
    }
    write("outer/inner", "");
    write("outer/inner/deep", "12\n");
    let hierarchy = v2(folder.path());
    let of = |path: &str, most| hierarchy.processes(&CgroupPath::new(path.as_bytes()), most);
    assert_eq!(of("/own", 2).unwrap(), [7, 8]);
    assert_eq!(of("/outer", 2).unwrap(), [12]);
    assert_eq!(of("/none", 2).unwrap(), [0; 0]);
    assert!(is_gone(&of("/gone", 2).unwrap_err()));
}

#[test]
fn usage_is_of_the_cgroup_meant_and_of_no_other() {
    let folder = folder(&[b"a", b"torn", b"bare"]);
    fs::write(folder.path().join("a/cpu.stat"), "usage_usec 25\n").unwrap();
    fs::write(folder.path().join("torn/cpu.stat"), "usage").unwrap();
    let hierarchy = v2(folder.path());
    let usage = |name: &str, id| hierarchy.usage(id, &CgroupPath::new(name.as_bytes()));
    let id = |name: &str| hierarchy.id(&CgroupPath::new(name.as_bytes())).unwrap();
    assert_eq!(usage("a", id("a")).unwrap(), std::time::Duration::from_micros(25));
    assert!(matches!(usage("a", CgroupId(1)), Err(UsageError::Gone)));
    assert!(matches!(usage("gone", CgroupId(1)), Err(UsageError::Gone)));
    assert!(matches!(usage("bare", id("bare")), Err(UsageError::NotKept)));
    assert!(matches!(usage("torn", id("torn")), Err(UsageError::Malformed { .. })));
}
