//! The hierarchy of cgroups that says whose a task is: where it is, and what it holds.

mod mounts;
mod processes;
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

use serde::Serialize;

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
    /// Its id: the inode of its directory, which programs in the kernel see too.
    pub id: CgroupId,
    /// Its path.
    pub path: CgroupPath,
}

/// A version of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Version 1: a hierarchy for each set of controllers.
    V1,
    /// Version 2: one hierarchy.
    V2,
}

/// Why CPU time cannot be told by cgroup on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAccounting {
    /// No hierarchy.
    #[error("no cgroups are mounted: mount them, such as with `mount -t cgroup2 none /sys/fs/cgroup`")]
    NotMounted,
    /// A hierarchy without the controller that counts.
    #[error(
        "the cgroup controller `cpuacct` is not mounted beside `cpu`: mount it, such as with `mount -t cgroup -o cpuacct \
         none /sys/fs/cgroup/cpuacct`"
    )]
    NoController,
}

/// Why what came of CPU quotas cannot be told on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQuotas {
    /// No hierarchy.
    #[error(transparent)]
    NotMounted(NoAccounting),
    /// A kernel that cannot hold tasks back.
    #[error("this kernel was built without CPU quotas (CONFIG_CFS_BANDWIDTH)")]
    NotBuilt,
    /// The hierarchy is without the controller.
    #[error(
        "the cgroup controller `cpu` is not at {}, and so no quota: mount the hierarchy of version 1 that has it, such as \
         with `mount -t cgroup -o cpu none /sys/fs/cgroup/cpu`",
        .0.display()
    )]
    Elsewhere(PathBuf),
}

/// Which kernels have quotas: there they are set up by.
const QUOTAS: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

/// The one hierarchy that says whose a task is: version 1's with the controller `cpu` where it is mounted, else version
/// 2's. Only one, so that what belongs to cgroups is disjoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    version: Version,
    tree: Mount,
    /// Where CPU time stands; on version 1 it may be a hierarchy of its own, with the same paths.
    accounting: Option<Mount>,
}

impl Hierarchy {
    /// Chooses among what is mounted; `None` where nothing is.
    #[must_use]
    pub fn choose(mounts: Mounts) -> Option<Self> {
        match (mounts.cpu, mounts.v2) {
            (Some(tree), _) => Some(Self { version: Version::V1, tree, accounting: mounts.cpuacct }),
            (None, Some(tree)) => Some(Self { version: Version::V2, accounting: Some(tree.clone()), tree }),
            (None, None) => None,
        }
    }

    /// Which version it is.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// How programs find whose a task is in it; `None` where the kernel does not say which hierarchy it is.
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

    /// Where it is mounted.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.tree.point
    }

    /// Where its parts are mounted, each once.
    #[cfg(test)]
    pub fn mount_points(&self) -> Vec<PathBuf> {
        let points = [Some(&self.tree), self.accounting.as_ref()].into_iter().flatten();
        let mut points: Vec<_> = points.map(|mount| mount.point.clone()).collect();
        points.dedup();
        points
    }

    /// The same version in a folder.
    #[cfg(test)]
    pub fn moved(&self, folder: &Path) -> Self {
        let tree = Mount { point: folder.to_owned(), view: View::Whole };
        Self { version: self.version, accounting: Some(tree.clone()), tree }
    }

    /// What of it this process does not see, and what to do; `None` where it sees everything.
    #[must_use]
    pub fn partial(&self) -> Option<String> {
        let mount = [Some(&self.tree), self.accounting.as_ref()].into_iter().flatten();
        let mount = mount.max_by(|one, other| one.view.cmp(&other.view))?;
        let shown = match &mount.view {
            View::Whole => return None,
            View::Below(path) => format!("only the cgroups below {path}"),
            View::BelowUnknown => "a part of the cgroups, of a place that this process cannot name".to_owned(),
        };
        Some(format!(
            "{} shows {shown}: give the sidecar the host's /sys/fs/cgroup, in a container with `--cgroupns=host`",
            mount.point.display()
        ))
    }

    /// Whether CPU time can be told by cgroup.
    ///
    /// # Errors
    /// Where the kernel's counts are not mounted.
    pub const fn accounts(&self) -> Result<(), NoAccounting> {
        if self.accounting.is_some() { Ok(()) } else { Err(NoAccounting::NoController) }
    }

    /// Whether what came of CPU quotas can be told by cgroup.
    ///
    /// # Errors
    /// Where this hierarchy, or this kernel, has none.
    pub fn quotas(&self) -> Result<(), NoQuotas> {
        let point = &self.tree.point;
        let controllers = || fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
        if self.version == Version::V2 && !controllers().split_whitespace().any(|controller| controller == "cpu") {
            return Err(NoQuotas::Elsewhere(point.clone()));
        }
        if Path::new(QUOTAS).exists() { Ok(()) } else { Err(NoQuotas::NotBuilt) }
    }

    /// Returns every visible cgroup, the root included; none if the path of the mount's root is unknown. Beyond the limits,
    /// cgroups of the largest subtrees are left out.
    ///
    /// # Errors
    /// Where the mount point cannot be read.
    pub fn scan(&self, limits: Limits) -> io::Result<Scan> {
        match self.tree.root() {
            Some(root) => walk::walk(self.tree.point.clone(), root, limits.depth, walk::Queues::fair(limits.cgroups)),
            None => Ok(Scan::default()),
        }
    }

    /// The id of the cgroup that has a path now.
    ///
    /// # Errors
    /// Where there is none, or none to be seen.
    pub fn id(&self, path: &CgroupPath) -> io::Result<CgroupId> {
        fs::symlink_metadata(self.directory(path)?).map(|directory| CgroupId(directory.ino()))
    }

    /// False if the cgroup has been removed, or another one has its path. True if that cannot be found out.
    #[must_use]
    pub fn holds(&self, id: CgroupId, path: &CgroupPath) -> bool {
        self.id(path).map_or_else(|error| !is_gone(&error), |found| found == id)
    }

    fn directory(&self, path: &CgroupPath) -> io::Result<PathBuf> {
        let hidden = || io::Error::new(io::ErrorKind::NotFound, format!("{path} is outside of what is mounted"));
        self.tree.directory(path).ok_or_else(hidden)
    }
}

/// Whether an operation failed since the cgroup is not there any more: a file that was opened before says so otherwise.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
