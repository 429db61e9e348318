//! Real cgroups for tests.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{CgroupPath, Hierarchy, Mounts};

#[path = "../../../tests/support/cgroups.rs"]
mod cgroups;
#[path = "../../../tests/support/mod.rs"]
mod support;

use cgroups::{Burner, Group, remove};
pub use support::skip;

/// Returns the completely visible hierarchies of this machine: both versions, unlike [`Hierarchy::choose`], which
/// returns one.
pub fn hierarchies() -> Vec<Hierarchy> {
    let mounts = Mounts::read().expect("the mounts");
    let v1 = Hierarchy::choose(Mounts { v2: None, ..mounts.clone() });
    let v2 = Hierarchy::choose(Mounts { cpu: None, ..mounts });
    v1.into_iter().chain(v2).filter(|hierarchy| hierarchy.partial().is_none() && hierarchy.accounts().is_ok()).collect()
}

/// A cgroup in every tree of a hierarchy. Dropping the value removes it with all descendants.
pub struct Tree {
    group: Group,
    /// Path of the cgroup.
    pub path: CgroupPath,
}

impl Tree {
    /// Creates the cgroup. Logs a skip and returns `None` if that is not permitted.
    pub fn create(hierarchy: &Hierarchy) -> Option<Self> {
        let made = Group::create(hierarchy.mount_points(), "");
        let group = made.inspect_err(|error| skip(&format!("real cgroups: {error}"))).ok()?;
        let path = CgroupPath::new(group.path.as_os_str().as_bytes());
        Some(Self { group, path })
    }

    fn directories(&self, path: &CgroupPath) -> Vec<PathBuf> {
        self.group.directories(Path::new(OsStr::from_bytes(path.as_bytes())))
    }

    /// Creates a descendant cgroup.
    pub fn make(&self, below: &[u8]) -> CgroupPath {
        let path = self.path.child(below);
        self.directories(&path).iter().for_each(|directory| fs::create_dir(directory).expect("a cgroup"));
        path
    }

    /// Removes a descendant cgroup once its processes have ended.
    pub fn remove(&self, path: &CgroupPath) {
        self.directories(path).iter().for_each(|directory| remove(directory).expect("an empty cgroup"));
    }

    /// Sets the CPU quota of a cgroup to a tenth of one CPU.
    pub fn limit(&self, path: &CgroupPath) -> io::Result<()> {
        self.group.limit(Path::new(OsStr::from_bytes(path.as_bytes())))
    }

    /// Runs a busy loop in a cgroup until the value is dropped, or for a few seconds.
    pub fn burn(&self, path: &CgroupPath) -> Burner {
        self.group.burn(Path::new(OsStr::from_bytes(path.as_bytes()))).expect("a busy process")
    }
}
