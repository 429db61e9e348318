//! The cgroup hierarchy that attributes tasks to workloads: its mount points, its cgroups and their counters.

mod mounts;
mod processes;
mod tasks;
#[cfg(test)]
mod tests;
mod threads;
mod usage;
mod walk;

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{CgroupId, CgroupPath, Ownership};

use self::mounts::{Mount, View};
pub use self::{
    mounts::Mounts,
    processes::netns_of,
    usage::UsageError,
    walk::{Limits, Scan},
};

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cgroup {
    /// The inode number of the cgroup's directory, which eBPF programs use as the id.
    pub id: CgroupId,
    /// Path from the root of the hierarchy.
    pub path: CgroupPath,
}

/// A version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Version 1: a hierarchy for each set of controllers.
    V1,
    /// Version 2: one hierarchy.
    V2,
}

/// The reason why CPU time is not available by cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAccounting {
    /// No hierarchy is mounted.
    #[error("no cgroups are mounted: mount them, for example with `mount -t cgroup2 none /sys/fs/cgroup`")]
    NotMounted,
    /// The controller `cpuacct` (version 1) is not mounted.
    #[error(
        "the cgroup controller `cpuacct` is not mounted: mount it, for example with `mount -t cgroup -o cpuacct \
         none /sys/fs/cgroup/cpuacct`"
    )]
    NoController,
}

/// The reason why CPU throttling is not available by cgroup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQuotas {
    /// No hierarchy is mounted.
    #[error(transparent)]
    NotMounted(NoAccounting),
    /// The kernel has no CPU bandwidth control.
    #[error("this kernel was built without CPU quotas (CONFIG_CFS_BANDWIDTH)")]
    NotBuilt,
    /// The controller `cpu` is not enabled in the hierarchy.
    #[error(
        "the cgroup controller `cpu` is not available at {}: mount the cgroup v1 hierarchy with it, for example \
         with `mount -t cgroup -o cpu none /sys/fs/cgroup/cpu`",
        .0.display()
    )]
    Elsewhere(PathBuf),
}

/// A sysctl that exists if the kernel has CPU bandwidth control (`CONFIG_CFS_BANDWIDTH`).
const QUOTAS: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

/// The hierarchy for attribution: version 1 with the controller `cpu` if that is mounted, otherwise version 2. One
/// hierarchy keeps the sets of tasks of all cgroups disjoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    version: Version,
    tree: Mount,
    /// The mount with CPU time. On version 1, `cpuacct` may be mounted separately; its cgroups then have identical
    /// paths.
    accounting: Option<Mount>,
}

impl Hierarchy {
    /// Chooses the hierarchy for attribution. Returns `None` if no hierarchy is mounted.
    #[must_use]
    pub fn choose(mounts: Mounts) -> Option<Self> {
        match (mounts.cpu, mounts.v2) {
            (Some(tree), _) => Some(Self { version: Version::V1, tree, accounting: mounts.cpuacct }),
            (None, Some(tree)) => Some(Self { version: Version::V2, accounting: Some(tree.clone()), tree }),
            (None, None) => None,
        }
    }

    /// Returns the version of the hierarchy.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns how eBPF programs read the cgroup of a task. `None` if `/proc/cgroups` has no usable entry for the
    /// controller `cpu`.
    #[must_use]
    pub fn ownership(&self) -> Option<Ownership> {
        match self.version {
            Version::V2 => Some(Ownership::Unified),
            Version::V1 => {
                let controllers = procfs::cgroups().ok()?.0;
                let cpu = controllers.iter().find(|controller| controller.name == "cpu")?;
                i32::try_from(cpu.hierarchy).ok().map(Ownership::Cpu)
            }
        }
    }

    /// Returns the mount point.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.tree.point
    }

    /// Returns the distinct mount points of the tree and of the CPU accounting.
    #[cfg(any(test, feature = "testing"))]
    pub fn mount_points(&self) -> Vec<PathBuf> {
        let points = [Some(&self.tree), self.accounting.as_ref()].into_iter().flatten();
        let mut points: Vec<_> = points.map(|mount| mount.point.clone()).collect();
        points.dedup();
        points
    }

    /// Returns a hierarchy of this version with its tree in a folder.
    #[cfg(any(test, feature = "testing"))]
    pub fn moved(&self, folder: &Path) -> Self {
        let tree = Mount { point: folder.to_owned(), view: View::Whole };
        Self { version: self.version, accounting: Some(tree.clone()), tree }
    }

    /// Returns a message with the visible part of the hierarchy and the remedy. `None` if the whole hierarchy is
    /// visible.
    #[must_use]
    pub fn partial(&self) -> Option<String> {
        let mount = [Some(&self.tree), self.accounting.as_ref()].into_iter().flatten();
        let mount = mount.max_by(|one, other| one.view.cmp(&other.view))?;
        let shown = match &mount.view {
            View::Whole => return None,
            View::Below(path) => format!("only the cgroups below {path}"),
            View::BelowUnknown => "a part of the cgroups, below an unknown path".to_owned(),
        };
        Some(format!(
            "{} shows {shown}: give the sidecar the host's /sys/fs/cgroup, in a container with `--cgroupns=host`",
            mount.point.display()
        ))
    }

    /// Checks whether CPU time is available by cgroup.
    ///
    /// # Errors
    /// If the CPU accounting is not mounted.
    pub const fn accounts(&self) -> Result<(), NoAccounting> {
        if self.accounting.is_some() { Ok(()) } else { Err(NoAccounting::NoController) }
    }

    /// Checks whether CPU throttling is available by cgroup.
    ///
    /// # Errors
    /// If the hierarchy lacks the controller `cpu`, or the kernel lacks CPU bandwidth control.
    pub fn quotas(&self) -> Result<(), NoQuotas> {
        let point = &self.tree.point;
        let controllers = || fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
        if self.version == Version::V2 && !controllers().split_whitespace().any(|controller| controller == "cpu") {
            return Err(NoQuotas::Elsewhere(point.clone()));
        }
        if Path::new(QUOTAS).exists() { Ok(()) } else { Err(NoQuotas::NotBuilt) }
    }

    /// Returns every visible cgroup, including the root. Returns no cgroup if the path of the mount's root is unknown.
    /// At the limits, the walk leaves out cgroups of the largest subtrees.
    ///
    /// # Errors
    /// If the mount point cannot be read.
    pub fn scan(&self, limits: Limits) -> io::Result<Scan> {
        match self.tree.root() {
            Some(root) => walk::walk(self.tree.point.clone(), root, limits.depth, walk::Queues::fair(limits.cgroups)),
            None => Ok(Scan::default()),
        }
    }

    /// Returns the id of the cgroup that currently has this path.
    ///
    /// # Errors
    /// If no cgroup has the path, or the cgroup is not visible.
    pub fn id(&self, path: &CgroupPath) -> io::Result<CgroupId> {
        fs::symlink_metadata(self.directory(path)?).map(|directory| CgroupId(directory.ino()))
    }

    /// Returns false if the cgroup has been removed or another cgroup has its path. Returns true if the check fails for
    /// another reason.
    #[must_use]
    pub fn holds(&self, id: CgroupId, path: &CgroupPath) -> bool {
        self.id(path).map_or_else(|error| !is_gone(&error), |found| found == id)
    }

    fn directory(&self, path: &CgroupPath) -> io::Result<PathBuf> {
        let hidden =
            || io::Error::new(io::ErrorKind::NotFound, format!("the mounted hierarchy does not contain {path}"));
        self.tree.directory(path).ok_or_else(hidden)
    }
}

/// Returns true if an operation failed because the cgroup has been removed. Reads of a file that was opened earlier
/// fail with `ENODEV`.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
