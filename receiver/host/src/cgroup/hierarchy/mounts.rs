//! Mount points of the cgroup hierarchies, and the part of each hierarchy that this process sees.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use procfs::process::MountInfo;
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::{cgroup::CgroupPath, namespaces::Namespace};

/// The visible part of a hierarchy. The order is from the largest part to the smallest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// The whole hierarchy.
    Whole,
    /// One cgroup and its descendants.
    Below(CgroupPath),
    /// One cgroup and its descendants. The cgroup namespace hides the path of the cgroup.
    BelowUnknown,
}

/// A mount of a hierarchy or of a subtree of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Mount point.
    pub point: PathBuf,
    /// The visible part.
    pub view: View,
}

impl Mount {
    /// Returns the directory of a cgroup; `None` if the mount does not show the cgroup, or if the path has a name that no cgroup can
    /// have and that leads out of the mount.
    pub fn directory(&self, path: &CgroupPath) -> Option<PathBuf> {
        let shown = self.root().filter(|shown| shown.contains(path))?;
        if path.names().any(|name| name == b"." || name == b"..") {
            return None;
        }
        let mut directory = self.point.clone();
        directory.extend(path.names().skip(shown.names().count()).map(|name| OsString::from_vec(name.to_vec())));
        Some(directory)
    }

    /// Returns the path of the cgroup at the mount point, if it is known.
    pub fn root(&self) -> Option<CgroupPath> {
        match &self.view {
            View::Whole => Some(CgroupPath::root()),
            View::Below(shown) => Some(shown.clone()),
            View::BelowUnknown => None,
        }
    }
}

/// The mounted hierarchies. Each has the mount that shows the largest part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// True if a hierarchy of version 1 is mounted.
    pub v1: bool,
    /// The hierarchy of version 2.
    pub v2: Option<Mount>,
    /// The hierarchy of version 1 that has the controller `cpu`.
    pub cpu: Option<Mount>,
    /// The hierarchy of version 1 that has the controller `cpuacct`. It is often the hierarchy of `cpu`.
    pub cpuacct: Option<Mount>,
    /// The hierarchy that has the controller `memory`, of version 1 or 2.
    pub memory: Option<Mount>,
}

impl Mounts {
    /// Reads the mounts of this process.
    ///
    /// # Errors
    /// If `/proc/self/mountinfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        let mounts = parse(&fs::read("/proc/self/mountinfo")?);
        Ok(Self::select(&mounts, Namespace::Cgroup.is_initial(), is_root))
    }

    /// Returns the mount point of the root of version 2.
    pub fn v2_root(&self) -> Option<&Path> {
        self.v2.as_ref().filter(|mount| mount.view == View::Whole).map(|mount| mount.point.as_path())
    }

    /// Selects the cgroup hierarchies from a list of mounts. `initial` is true in the initial cgroup namespace.
    /// `is_root` returns true if the mount point is the root of a hierarchy, and `None` if it is not accessible.
    pub fn select(mounts: &[MountInfo], initial: bool, is_root: impl Fn(&MountInfo) -> Option<bool>) -> Self {
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
        let v2 = best(&|info| !is_v1(info));
        Self {
            v1: reachable.iter().any(|(info, _)| is_v1(info)),
            memory: with("memory").or_else(|| v2.clone()),
            v2,
            cpu: with("cpu"),
            cpuacct: with("cpuacct"),
        }
    }
}

/// Parses `mountinfo`. Skips malformed lines, so that one malformed line does not hide the other mounts.
pub fn parse(mountinfo: &[u8]) -> Vec<MountInfo> {
    let lines = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| MountInfo::from_line(line).ok()).collect()
}

fn is_v1(mount: &MountInfo) -> bool {
    mount.fs_type == "cgroup"
}

fn mount(info: &MountInfo, initial: bool, is_root: bool) -> Mount {
    let root = unescaped(&info.root);
    // The kernel writes the path relative to the cgroup namespace of this process, with `..` for cgroups outside.
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

/// Returns true if a mount point is the root of a hierarchy. `mountinfo` is ambiguous, because cgroup namespaces show
/// any cgroup as `/`. Version 2 has `cgroup.events` in every cgroup except the root, and version 1 has `release_agent`
/// only in the root.
fn is_root(info: &MountInfo) -> Option<bool> {
    let point = point(info);
    let device = fs::metadata(&point).ok()?.dev();
    let has = |file: &str| Path::try_exists(&point.join(file)).ok();
    match (format!("{}:{}", major(device), minor(device)) == info.majmin, is_v1(info)) {
        // Another file system is mounted over the mount point.
        (false, _) => None,
        (true, true) => has("release_agent"),
        (true, false) => has("cgroup.events").map(|has| !has),
    }
}

/// Decodes the octal escapes of a `mountinfo` field, for example `\040` for a space.
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
