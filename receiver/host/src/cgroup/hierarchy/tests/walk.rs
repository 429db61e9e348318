use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::cgroup::Uid;

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
fn cgroups_beyond_the_limits_are_counted() {
    let folder = folder(&[b"a/b/c/d", b"a/e", b"f", b"g"]);
    let hierarchy = v2(folder.path());
    for (limits, found, beyond) in [
        (limits(100, 3), 7, 1),
        (limits(100, 0), 1, 3),
        (limits(4, 64), 4, 2),
        // A walk always visits the first cgroup, so that it counts the cgroups beyond the limit.
        (limits(0, 64), 1, 3),
    ] {
        let scan = hierarchy.scan(limits).unwrap();
        assert_eq!((scan.cgroups.len(), scan.beyond), (found, beyond), "{limits:?}");
    }
}

#[test]
fn a_cgroup_exists_until_it_is_removed_or_replaced() {
    let folder = folder(&[b"a"]);
    let hierarchy = v2(folder.path());
    let path = CgroupPath::new(b"/a");
    let id = hierarchy.id(&path).unwrap();
    assert!(hierarchy.holds(id, &path) && !hierarchy.holds(CgroupId(id.0 + 1), &path));
    fs::remove_dir(folder.path().join("a")).unwrap();
    assert!(!hierarchy.holds(id, &path));
}

#[test]
fn a_walk_ends_at_the_depth_limit() {
    let folder = folder(&[]);
    let mut deepest = folder.path().to_owned();
    deepest.extend(std::iter::repeat_n("d", 500));
    fs::create_dir_all(deepest).unwrap();
    let scan = v2(folder.path()).scan(Limits::default()).unwrap();
    assert_eq!((scan.cgroups.len(), scan.beyond), (65, 1));
}

#[test]
fn vanishing_directories_are_not_errors() {
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
fn a_missing_root_is_an_error() {
    let folder = folder(&[]);
    assert!(v2(&folder.path().join("gone")).scan(Limits::default()).is_err());
}

#[test]
fn processes_are_of_the_cgroup_or_of_its_first_descendant_with_some() {
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
fn usage_of_a_replaced_cgroup_is_not_returned() {
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

#[test]
fn a_cgroup_is_in_a_namespace_while_one_of_its_processes_is() {
    let folder = folder(&[b"here", b"ended", b"empty"]);
    let own = u32::try_from(netns_of(std::process::id()).unwrap()).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for (cgroup, pid) in [("here", std::process::id()), ("ended", child.id()), ("empty", 0)] {
        fs::write(folder.path().join(cgroup).join("cgroup.procs"), format!("{pid}\n")).unwrap();
    }
    let hierarchy = v2(folder.path());
    let is_in = |path: &str, inode| hierarchy.is_in_namespace(&CgroupPath::new(path.as_bytes()), inode);
    assert!(is_in("/here", own));
    for (path, inode) in [("/here", own + 1), ("/ended", own), ("/empty", own), ("/gone", own)] {
        assert!(!is_in(path, inode), "{path}");
    }
}

const FLOOD: usize = 18_000;

fn flood(folder: &Path, parent: &str) {
    let parent = folder.join(parent);
    fs::create_dir_all(&parent).unwrap();
    (0..FLOOD).for_each(|n| fs::create_dir(parent.join(format!("n{n}"))).unwrap());
}

/// Creates a flood of cgroups below one parent and cgroups elsewhere, and checks that the walk finds all of the latter.
fn cut_only_below(parent: &str) -> Scan {
    let container = format!("docker-{:064x}.scope", 7);
    let others = [
        "system.slice/a.service/b".to_owned(),
        format!("system.slice/{container}/init.scope"),
        format!("kubepods/burstable/pod15513b48-e7a5-48fc-b9e3-92f713f36504/{:064x}", 8),
        "user.slice/user-1001.slice/user@1001.service/app.slice/b".to_owned(),
        "zzz/last".to_owned(),
    ];
    let folder = folder(&others.each_ref().map(|other| other.as_bytes()));
    flood(folder.path(), parent);
    let scan = v2(folder.path()).scan(Limits::default()).unwrap();
    assert!(scan.beyond > 0 && scan.unreadable == 0);
    let found: std::collections::HashSet<String> = paths(&scan).into_iter().collect();
    for other in &others {
        assert!(found.contains(&format!("/{other}")), "{other}");
    }
    let all = 1 + FLOOD + walked(folder.path(), parent);
    assert_eq!(scan.cgroups.len() + scan.beyond, all);
    for (n, cgroup) in scan.cgroups.iter().enumerate().take(200) {
        let above = cgroup.path.ancestor(cgroup.path.names().count().saturating_sub(1));
        assert!(n == 0 || scan.cgroups[..n].iter().any(|earlier| earlier.path == above), "{above}");
    }
    scan
}

/// Returns the number of directories below a folder, without the directories of the flood.
fn walked(folder: &Path, parent: &str) -> usize {
    let below = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_numbered = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"n"));
    let is_flood = |path: &Path| is_numbered(path) && path.parent().is_some_and(|above| above.ends_with(parent));
    below.filter(|path| path.is_dir() && !is_flood(path)).map(|path| 1 + walked(&path, parent)).sum()
}

#[test]
fn a_flood_of_a_user_cuts_only_cgroups_of_that_user() {
    let scan = cut_only_below("user.slice/user-1000.slice/user@1000.service/app.slice");
    let of_user = scan.cgroups.iter().filter(|cgroup| cgroup.path.user() == Some(Uid(1000))).count();
    assert_eq!(of_user, Limits::default().cgroups / 8);
}

#[test]
fn a_flood_of_a_container_cuts_only_cgroups_of_that_container() {
    let container = format!("system.slice/docker-{:064x}.scope", 1);
    let scan = cut_only_below(&container);
    let own = CgroupPath::new(container.as_bytes());
    assert_eq!(scan.cgroups.iter().filter(|cgroup| own.contains(&cgroup.path)).count(), 1 + 1024);
}

#[test]
fn a_flood_of_a_service_cuts_only_cgroups_of_that_slice() {
    let scan = cut_only_below("system.slice/a.service");
    let cut = CgroupPath::new(b"/system.slice");
    let of_slice = scan.cgroups.iter().filter(|cgroup| cut.contains(&cgroup.path)).count();
    assert!(of_slice > Limits::default().cgroups - 100, "the rest of the limit: {of_slice}");
}

#[test]
fn processes_are_found_below_a_flood() {
    let container = format!("docker-{:064x}.scope", 1);
    let folder = folder(&[container.as_bytes()]);
    for n in 0..60 {
        let below = folder.path().join(&container).join(format!("n{n}"));
        fs::create_dir(&below).unwrap();
        fs::write(below.join("cgroup.procs"), if n == 37 { "12\n" } else { "" }).unwrap();
    }
    fs::write(folder.path().join(&container).join("cgroup.procs"), "").unwrap();
    let found = v2(folder.path()).processes(&CgroupPath::new(container.as_bytes()), 1).unwrap();
    assert_eq!(found, [12]);
}
