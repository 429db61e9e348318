//! Where cgroup hierarchies are mounted, and how much of them this process sees there.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use procfs::process::MountInfo;
use rustix::fs::{major, minor};
use serde::Serialize;

use crate::cgroup::CgroupPath;

/// The inode of the cgroup namespace that the kernel begins with (`PROC_CGROUP_INIT_INO`).
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFB;

/// How much of a hierarchy is to be seen, the most first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// All of it.
    Whole,
    /// A cgroup and what is below it.
    Below(CgroupPath),
    /// A cgroup and what is below it, whose path is not to be known from inside of this cgroup namespace.
    BelowUnknown,
}

/// A hierarchy, or a part of it, in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// What is mounted there.
    pub view: View,
}

impl Mount {
    /// A cgroup's directory; `None` where the mount does not show it.
    pub fn directory(&self, path: &CgroupPath) -> Option<PathBuf> {
        let shown = self.root().filter(|shown| shown.contains(path))?;
        let mut directory = self.point.clone();
        directory.extend(path.names().skip(shown.names().count()).map(|name| OsString::from_vec(name.to_vec())));
        Some(directory)
    }

    /// The path of the cgroup whose directory the mount point is, where it can be known.
    pub fn root(&self) -> Option<CgroupPath> {
        match &self.view {
            View::Whole => Some(CgroupPath::root()),
            View::Below(shown) => Some(shown.clone()),
            View::BelowUnknown => None,
        }
    }
}

/// The mounted hierarchies, each where it shows most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Whether any hierarchy of version 1 is mounted.
    pub v1: bool,
    /// The hierarchy of version 2.
    pub v2: Option<Mount>,
    /// The hierarchy of version 1 that has the controller `cpu`.
    pub cpu: Option<Mount>,
    /// The hierarchy of version 1 that has the controller `cpuacct`; often the one of `cpu`.
    pub cpuacct: Option<Mount>,
}

impl Mounts {
    /// Looks at this process's mounts.
    ///
    /// # Errors
    /// Where `/proc/self/mountinfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        let mounts = parse(&fs::read("/proc/self/mountinfo")?);
        // A kernel without cgroup namespaces has no such file.
        let initial = fs::metadata("/proc/self/ns/cgroup").map_or(true, |file| file.ino() == INITIAL_NAMESPACE);
        Ok(Self::of(&mounts, initial, is_root))
    }

    /// Where the root of version 2's hierarchy is to be seen.
    pub fn v2_root(&self) -> Option<&Path> {
        self.v2.as_ref().filter(|mount| mount.view == View::Whole).map(|mount| mount.point.as_path())
    }

    /// The hierarchies among these mounts. `initial` says whether this process is in the first cgroup namespace, which
    /// paths are relative to; `is_root` whether the mount point is a hierarchy's root, `None` where it is out of reach.
    pub fn of(mounts: &[MountInfo], initial: bool, is_root: impl Fn(&MountInfo) -> Option<bool>) -> Self {
        let covered = |n: usize| mounts[n + 1..].iter().any(|later| later.mount_point == mounts[n].mount_point);
        let reachable: Vec<(&MountInfo, Mount)> = (0..mounts.len())
            .filter(|n| mounts[*n].fs_type.starts_with("cgroup") && !covered(*n))
            .filter_map(|n| Some((&mounts[n], mount(&mounts[n], initial, is_root(&mounts[n])?))))
            .collect();
        let best = |wanted: &dyn Fn(&MountInfo) -> bool| {
            let found = reachable.iter().filter(|(info, _)| wanted(info)).map(|(_, mount)| mount);
            found.min_by(|one, other| one.view.cmp(&other.view)).cloned()
        };
        let with = |controller: &str| best(&|info| is_v1(info) && info.super_options.contains_key(controller));
        Self {
            v1: reachable.iter().any(|(info, _)| is_v1(info)),
            v2: best(&|info| !is_v1(info)),
            cpu: with("cpu"),
            cpuacct: with("cpuacct"),
        }
    }
}

/// The lines that can be understood: one odd mount does not hide the others.
pub fn parse(mountinfo: &[u8]) -> Vec<MountInfo> {
    let lines = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| MountInfo::from_line(line).ok()).collect()
}

fn is_v1(mount: &MountInfo) -> bool {
    mount.fs_type == "cgroup"
}

fn mount(info: &MountInfo, initial: bool, is_root: bool) -> Mount {
    let root = unescaped(&info.root);
    // The kernel writes it relative to this process's cgroup namespace, with `..` for what is outside.
    let outside = root.split(|byte| *byte == b'/').any(|name| name == b"..");
    let view = match CgroupPath::new(&root) {
        _ if is_root => View::Whole,
        path if initial && !outside && path != CgroupPath::root() => View::Below(path),
        _ => View::BelowUnknown,
    };
    Mount { point: point(info), view }
}

fn point(info: &MountInfo) -> PathBuf {
    OsString::from_vec(unescaped(&info.mount_point.to_string_lossy())).into()
}

/// Whether a mount point is a hierarchy's root. Its line cannot say: namespaces show any cgroup as `/`. But version 2 gives
/// `cgroup.events` to all cgroups but the root, and version 1 `release_agent` to the root alone.
fn is_root(info: &MountInfo) -> Option<bool> {
    let point = point(info);
    let device = fs::metadata(&point).ok()?.dev();
    let has = |file: &str| Path::try_exists(&point.join(file)).ok();
    match (format!("{}:{}", major(device), minor(device)) == info.majmin, is_v1(info)) {
        // Something else is mounted over it.
        (false, _) => None,
        (true, true) => has("release_agent"),
        (true, false) => has("cgroup.events").map(|has| !has),
    }
}

/// A field with the kernel's `\040` for a space and the like turned back.
fn unescaped(field: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}
