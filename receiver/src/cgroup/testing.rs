//! Real cgroups for tests.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{CgroupPath, Hierarchy, Mounts};

#[path = "../../tests/support/cgroups.rs"]
mod cgroups;
#[path = "../../tests/support/mod.rs"]
mod support;

use cgroups::{Burner, Group, remove};
pub use support::skip;

/// Every hierarchy of this machine that could be the one, whatever would be chosen.
pub fn hierarchies() -> Vec<Hierarchy> {
    let mounts = Mounts::read().unwrap();
    let v1 = Hierarchy::choose(Mounts { v2: None, ..mounts.clone() });
    let v2 = Hierarchy::choose(Mounts { cpu: None, ..mounts });
    v1.into_iter().chain(v2).filter(|hierarchy| hierarchy.partial().is_none() && hierarchy.accounts().is_ok()).collect()
}

/// A cgroup of a test's own in every tree of a hierarchy, with what the test makes below. It ends with the value.
pub struct Tree {
    group: Group,
    /// Its path.
    pub path: CgroupPath,
}

impl Tree {
    /// Makes it; `None`, said as the runner wants it, where that is not allowed.
    pub fn create(hierarchy: &Hierarchy) -> Option<Self> {
        let made = Group::create(hierarchy.mount_points(), "");
        let group = made.inspect_err(|error| skip(&format!("real cgroups: {error}"))).ok()?;
        let path = CgroupPath::new(group.path.as_os_str().as_bytes());
        Some(Self { group, path })
    }

    fn directories(&self, path: &CgroupPath) -> Vec<PathBuf> {
        self.group.directories(Path::new(OsStr::from_bytes(path.as_bytes())))
    }

    /// Makes a cgroup below.
    pub fn make(&self, below: &[u8]) -> CgroupPath {
        let path = self.path.child(below);
        self.directories(&path).iter().for_each(|directory| fs::create_dir(directory).unwrap());
        path
    }

    /// Removes a cgroup below, once what was in it has ended.
    pub fn remove(&self, path: &CgroupPath) {
        self.directories(path).iter().for_each(|directory| remove(directory).unwrap());
    }

    /// Gives a cgroup a quota of a tenth of one CPU.
    pub fn limit(&self, path: &CgroupPath) -> io::Result<()> {
        self.group.limit(Path::new(OsStr::from_bytes(path.as_bytes())))
    }

    /// Runs something in a cgroup that takes as much CPU time as it gets, until the value goes, or for some seconds.
    pub fn burn(&self, path: &CgroupPath) -> Burner {
        self.group.burn(Path::new(OsStr::from_bytes(path.as_bytes()))).unwrap()
    }
}
