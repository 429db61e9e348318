use super::{super::mounts::parse, *};

const PURE_V2: &str = "\
24 29 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
36 24 0:31 / /sys/fs/pstore rw,nosuid,nodev,noexec,relatime shared:10 - pstore pstore rw
";
const HYBRID: &str = "\
34 25 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
35 34 0:30 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
36 34 0:31 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
43 34 0:38 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,cpu,cpuacct
";
const APART: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const RHEL_7: &str = "\
25 17 0:20 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:8 - tmpfs tmpfs ro,seclabel,mode=755
26 25 0:21 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:9 - cgroup cgroup rw,seclabel,xattr,name=systemd
28 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,seclabel,cpuacct,cpu
";
/// Docker on version 1 in the cgroup namespace of the host.
const BIND_V1: &str = "\
1017 1016 0:51 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
1019 1017 0:38 /docker/4a1c /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,cpu,cpuacct
";
/// Docker on version 2 in a private cgroup namespace.
const PRIVATE_V2: &str =
    "712 711 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n";
/// Docker on version 2 in a private cgroup namespace, with an additional mount of the host's tree.
const PRIVATE_AND_HOST: &str = "\
712 711 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
713 710 0:30 /../.. /host/sys/fs/cgroup ro,nosuid,nodev,noexec,relatime master:9 - cgroup2 cgroup2 rw,nsdelegate
";

/// Selects the hierarchies from a `mountinfo` text. `roots` are the mount points of hierarchy roots.
fn read(text: &str, initial: bool, roots: &[&str]) -> Mounts {
    let is_root =
        |mount: &procfs::process::MountInfo| Some(roots.iter().any(|root| mount.mount_point == Path::new(root)));
    Mounts::select(&parse(text.as_bytes()), initial, is_root)
}

fn path(text: &str) -> CgroupPath {
    CgroupPath::new(text.as_bytes())
}

/// Returns the version, the directory of a cgroup and the directory of its CPU accounting.
fn chosen(text: &str, roots: &[&str]) -> Option<(Version, PathBuf, Option<PathBuf>)> {
    let hierarchy = Hierarchy::choose(read(text, true, roots))?;
    assert_eq!(hierarchy.partial(), None, "{text}");
    let accounting = hierarchy.accounting.as_ref().and_then(|mount| mount.directory(&path("/a/b")));
    Some((hierarchy.version, hierarchy.directory(&path("/a/b")).unwrap(), accounting))
}

#[test]
fn the_hierarchy_with_the_cpu_controller_is_chosen() {
    let expected = |version, tree: &str, accounting: &str| Some((version, tree.into(), Some(accounting.into())));
    let together = "/sys/fs/cgroup/cpu,cpuacct";
    for (text, roots, version, tree, accounting) in [
        (PURE_V2, &["/sys/fs/cgroup"][..], Version::V2, "/sys/fs/cgroup", "/sys/fs/cgroup"),
        (HYBRID, &[together, "/sys/fs/cgroup/unified"], Version::V1, together, together),
        (
            APART,
            &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"],
            Version::V1,
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/cpuacct",
        ),
        (RHEL_7, &[together], Version::V1, together, together),
    ] {
        let found = chosen(text, roots);
        assert_eq!(found, expected(version, &format!("{tree}/a/b"), &format!("{accounting}/a/b")), "{text}");
    }
}

#[test]
fn missing_controllers_are_reported() {
    assert_eq!(Hierarchy::choose(read("", true, &[])), None);
    let named = "26 25 0:21 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,name=systemd\n";
    assert_eq!(Hierarchy::choose(read(named, true, &["/sys/fs/cgroup/systemd"])), None);
    let alone = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
    let hierarchy = Hierarchy::choose(read(alone, true, &["/sys/fs/cgroup/cpu"])).unwrap();
    assert_eq!(hierarchy.accounts(), Err(NoAccounting::NoController));
}

#[test]
fn a_mounted_subtree_keeps_its_real_paths_if_they_are_known() {
    let hierarchy = Hierarchy::choose(read(BIND_V1, true, &[])).unwrap();
    let below = |name: &str| Path::new("/sys/fs/cgroup/cpu,cpuacct").join(name);
    assert_eq!(hierarchy.directory(&path("/docker/4a1c")).unwrap(), below(""));
    assert_eq!(hierarchy.directory(&path("/docker/4a1c/x")).unwrap(), below("x"));
    assert!(hierarchy.directory(&path("/docker/4a1cx")).is_err());
    assert!(hierarchy.directory(&path("/x")).is_err());
    let message = hierarchy.partial().unwrap();
    assert!(
        message.starts_with("/sys/fs/cgroup/cpu,cpuacct shows only the cgroups below /docker/4a1c: give "),
        "{message}"
    );
}

#[test]
fn paths_outside_of_the_namespace_are_unknown() {
    let dotted = PRIVATE_V2.replace("0:30 / ", "0:30 /../x ");
    let named = PRIVATE_V2.replace("0:30 / ", "0:30 /x ");
    for (text, initial) in [(PRIVATE_V2, false), (PRIVATE_V2, true), (&dotted, true), (&dotted, false), (&named, false)]
    {
        let hierarchy = Hierarchy::choose(read(text, initial, &[])).unwrap();
        assert_eq!(hierarchy.tree.view, View::BelowUnknown, "{text}");
        assert!(hierarchy.directory(&CgroupPath::root()).is_err(), "{text}");
        assert_eq!(hierarchy.scan(Limits::default()).unwrap(), Scan::default());
    }
    let hierarchy = Hierarchy::choose(read(PRIVATE_V2, false, &[])).unwrap();
    let message = hierarchy.partial().unwrap();
    for words in ["/sys/fs/cgroup shows a part", "the host's /sys/fs/cgroup", "`--cgroupns=host`"] {
        assert!(message.contains(words), "{words} in {message}");
    }
}

#[test]
fn the_mount_that_shows_the_root_is_preferred() {
    let mounts = read(PRIVATE_AND_HOST, false, &["/host/sys/fs/cgroup"]);
    assert_eq!(mounts.v2, Some(whole(Path::new("/host/sys/fs/cgroup"))));
    // The last mount at a mount point covers the earlier mounts.
    let twice = format!("{PRIVATE_V2}{}", PRIVATE_V2.replace("0:30 / ", "0:30 /x "));
    assert_eq!(read(&twice, true, &[]).v2.unwrap().view, View::Below(path("/x")));
}

#[test]
fn malformed_lines_and_covered_mounts_are_skipped() {
    let text = b"9 1 8:1 / /mnt/\xff rw - ext4 /dev/sda1 rw\n35 24 0:30 / /my\\040cgroups\\134 rw - cgroup2 none rw\nnonsense\n";
    let mounts = Mounts::select(&parse(text), true, |_| Some(true));
    assert_eq!(mounts.v2, Some(whole(Path::new("/my cgroups\\"))));
    // Unreachable and covered mounts are ignored.
    assert_eq!(Mounts::select(&parse(text), true, |_| None), Mounts::default());
}
