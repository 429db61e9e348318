//! Tests against the running kernel, in every mounted hierarchy.

use std::{collections::HashSet, ffi::CString, os::unix::ffi::OsStrExt as _};

use super::*;
use crate::cgroup::testing::{Tree, hierarchies};

/// Returns the cgroup id that `bpf_get_current_cgroup_id` returns, from the file handle of the directory.
fn kernel_id(directory: &Path) -> u64 {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        id: u64,
    }
    let path = CString::new(directory.as_os_str().as_bytes()).unwrap();
    let mut handle = Handle { bytes: 8, kind: 0, id: 0 };
    let mut mount = 0_i32;
    // SAFETY: the path ends in NUL, and the handle has room for the eight bytes that `handle_bytes` declares.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            std::ptr::from_mut(&mut handle),
            std::ptr::from_mut(&mut mount),
            0,
        )
    };
    assert_eq!(result, 0, "{}: {}", directory.display(), io::Error::last_os_error());
    handle.id
}

#[test]
fn ids_are_equal_to_the_ids_of_the_kernel() {
    for hierarchy in hierarchies() {
        let Some(tree) = Tree::create(&hierarchy) else { return };
        for path in [CgroupPath::root(), tree.path.clone(), tree.make(b"odd \xff name")] {
            let directory = hierarchy.directory(&path).unwrap();
            assert_eq!(hierarchy.id(&path).unwrap().0, kernel_id(&directory), "{path}");
        }
    }
}

#[test]
fn a_scan_finds_thousands_of_cgroups_until_they_are_removed() {
    for hierarchy in hierarchies() {
        let Some(tree) = Tree::create(&hierarchy) else { return };
        let mut made = HashSet::from([tree.path.clone()]);
        for outer in 0..50 {
            let outer = format!("outer \u{fc} {outer}");
            made.insert(tree.make(outer.as_bytes()));
            made.extend((0..40).map(|inner| tree.make(format!("{outer}/{inner}").as_bytes())));
        }
        let below = |scan: Scan| scan.cgroups.into_iter().filter(|cgroup| tree.path.contains(&cgroup.path));
        let found: Vec<Cgroup> = below(hierarchy.scan(Limits::default()).unwrap()).collect();
        assert_eq!(found.len(), made.len());
        for cgroup in &found {
            assert!(made.contains(&cgroup.path), "{cgroup:?}");
            assert_eq!(hierarchy.id(&cgroup.path).unwrap(), cgroup.id);
        }
        let parent = &tree.path;
        drop(hierarchy.processes(parent, 1).unwrap());
        let gone = found.last().unwrap();
        tree.remove(&gone.path);
        assert!(matches!(hierarchy.usage(gone.id, &gone.path), Err(UsageError::Gone)));
        assert_eq!(below(hierarchy.scan(Limits::default()).unwrap()).count(), made.len() - 1);
    }
}

#[test]
fn ids_increase_with_every_new_cgroup() {
    for hierarchy in hierarchies() {
        let Some(tree) = Tree::create(&hierarchy) else { return };
        let ids: Vec<CgroupId> =
            (0..20).map(|n| hierarchy.id(&tree.make(format!("{n}").as_bytes())).unwrap()).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        // The kernel does not reuse an id soon.
        let last = *ids.last().unwrap();
        tree.remove(&tree.path.child(b"19"));
        assert!(hierarchy.id(&tree.make(b"19")).unwrap() > last);
    }
}

#[test]
fn threads_are_those_of_a_cgroup_and_its_descendants() {
    for hierarchy in hierarchies() {
        let Some(tree) = Tree::create(&hierarchy) else { return };
        let inner = tree.make(b"inner");
        let [outer_id, inner_id] = [&tree.path, &inner].map(|path| hierarchy.id(path).unwrap());
        let counted =
            || [hierarchy.threads(outer_id, &tree.path).unwrap(), hierarchy.threads(inner_id, &inner).unwrap()];
        assert_eq!(counted(), [0, 0]);
        let _burners = [tree.burn(&inner), tree.burn(&inner)];
        assert_eq!(counted(), [2, 2]);
        assert!(crate::load::all_threads().unwrap() > 2);
        assert_eq!(hierarchy.threads(inner_id, &tree.path), Err(UsageError::Gone));
    }
}

#[test]
fn a_process_is_found_in_its_cgroup_and_its_parent() {
    for hierarchy in hierarchies() {
        let Some(tree) = Tree::create(&hierarchy) else { return };
        let inner = tree.make(b"inner");
        assert_eq!(hierarchy.processes(&tree.path, 5).unwrap(), [0; 0]);
        let _burner = tree.burn(&inner);
        let own = hierarchy.processes(&inner, 5).unwrap();
        assert_eq!(own.len(), 1);
        assert_eq!(hierarchy.processes(&tree.path, 5).unwrap(), own);
        let here = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert_eq!(netns_of(own[0]).unwrap(), here);
    }
}

#[test]
fn the_mounts_of_this_machine_are_parsed() {
    let Some(hierarchy) = Hierarchy::choose(Mounts::read().unwrap()) else {
        return crate::cgroup::testing::skip("the hierarchy in use: no cgroups are mounted");
    };
    if hierarchy.partial().is_none() {
        assert_eq!(hierarchy.id(&CgroupPath::root()).unwrap(), CgroupId(1), "the kernel's root");
    }
}
