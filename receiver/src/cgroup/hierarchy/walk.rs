//! Walking a tree of cgroups.

mod queues;

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
};

pub use self::queues::Queues;
use super::{Cgroup, is_gone};
use crate::cgroup::{CgroupId, CgroupPath};

/// How far a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cgroups at most, and an eighth more of those that users and containers make.
    pub cgroups: usize,
    /// Levels below the first cgroup at most.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cgroups: 16_384, depth: 64 }
    }
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Every cgroup, a parent before its children. The system's come first, and in each subtree upper levels.
    pub cgroups: Vec<Cgroup>,
    /// Cgroups beyond the limits. Nobody looked below them.
    pub beyond: usize,
    /// Cgroups that cannot be looked at, or not below.
    pub unreadable: usize,
}

/// A directory to visit.
struct Visit {
    directory: PathBuf,
    path: CgroupPath,
    depth: usize,
}

/// Returns the cgroup with this directory and path and those below it, down to a depth. Leaves out directories that vanish
/// meanwhile and those of other file systems, and follows no links.
///
/// `queues` hold the pending visits, and decide which cgroups a walk leaves out at its limit.
///
/// # Errors
/// Where the first directory cannot be read.
pub fn walk(directory: PathBuf, path: CgroupPath, depth: usize, mut queues: Queues) -> io::Result<Scan> {
    let device = fs::symlink_metadata(&directory)?.dev();
    let mut scan = Scan::default();
    queues.push(Visit { directory, path, depth: 0 });
    while let Some(visit) = queues.pop() {
        let metadata = match fs::symlink_metadata(&visit.directory) {
            Ok(metadata) if metadata.is_dir() && metadata.dev() == device => metadata,
            Err(error) if !is_gone(&error) => {
                scan.unreadable += 1;
                continue;
            }
            _ => continue,
        };
        scan.cgroups.push(Cgroup { id: CgroupId(metadata.ino()), path: visit.path.clone() });
        if is_leaf(&metadata) {
            continue;
        }
        match list(&visit, depth, &mut queues) {
            Ok(beyond) => scan.beyond += beyond,
            Err(error) if is_gone(&error) => {}
            Err(_) => scan.unreadable += 1,
        }
    }
    scan.beyond += queues.left();
    Ok(scan)
}

/// Queues the children of a cgroup, and returns how many found no room or are too deep.
fn list(visit: &Visit, depth: usize, queues: &mut Queues) -> io::Result<usize> {
    let mut beyond = 0;
    for entry in fs::read_dir(&visit.directory)? {
        let entry = entry?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if visit.depth >= depth || !queues.push(visit.below(&entry.file_name())) {
            beyond += 1;
        }
    }
    Ok(beyond)
}

/// The kernel counts a directory's subdirectories among its links, beside itself and its name. Most cgroups have none, and
/// listing their dozens of files is most of a walk's cost.
fn is_leaf(metadata: &fs::Metadata) -> bool {
    metadata.nlink() == 2
}

impl Visit {
    fn below(&self, name: &OsStr) -> Self {
        Self { directory: self.directory.join(name), path: self.path.child(name.as_bytes()), depth: self.depth + 1 }
    }
}
