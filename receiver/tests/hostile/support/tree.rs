//! Cgroups at the paths that systemd and runtimes use, below a slice of the test.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use undercurrent::workloads::Mounts;

use super::{
    cgroups::{Burner, Group},
    line::Point,
    surroundings::skip,
};

/// The attribute that names a workload by its cgroup.
const CGROUP: &str = "undercurrent.workload.cgroup";

/// A slice in each hierarchy that the sidecar reads. Dropping the value removes the slice and all cgroups below
/// it.
pub struct Tree(Group);

impl Tree {
    /// Returns `None`, and reports a skip, on a machine where the test cannot create cgroups.
    pub fn create(test: &str) -> Option<Self> {
        let mounts = Mounts::read().unwrap();
        let hierarchies = if mounts.cpu.is_some() { [mounts.cpu, mounts.cpuacct] } else { [mounts.v2, None] };
        let mut points: Vec<PathBuf> = hierarchies.into_iter().flatten().map(|mount| mount.point).collect();
        points.dedup();
        if points.is_empty() {
            skip(&format!("{test}: no cgroups are mounted"));
            return None;
        }
        match Group::create(points, ".slice") {
            Ok(group) => Some(Self(group)),
            Err(error) => {
                skip(&format!("{test}: {error}"));
                None
            }
        }
    }

    /// Returns the path of a cgroup below the slice, from the root of its hierarchy.
    pub fn path(&self, below: &str) -> PathBuf {
        self.0.path.join(below)
    }

    /// Returns the directories of a cgroup below the slice, one in each hierarchy.
    pub fn directories(&self, below: &str) -> Vec<PathBuf> {
        self.0.directories(&self.path(below))
    }

    /// Creates a cgroup below the slice with all parents, and returns its directories.
    pub fn make(&self, below: &str) -> Vec<PathBuf> {
        let directories = self.directories(below);
        directories.iter().for_each(|directory| fs::create_dir_all(directory).unwrap());
        directories
    }

    /// Creates a cgroup with a process that uses CPU time until the value is dropped.
    pub fn burn(&self, below: &str) -> Burner {
        self.make(below);
        self.0.burn(&self.path(below)).unwrap()
    }

    /// Returns true for a point of the workload with this cgroup.
    pub fn is(&self, point: &Point, below: &str) -> bool {
        let path = self.path(below);
        point.resource.get(CGROUP).is_some_and(|of| Path::new(of).as_os_str().as_bytes() == path.as_os_str().as_bytes())
    }
}
