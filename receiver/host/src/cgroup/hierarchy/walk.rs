//! Walks of a cgroup tree.

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

/// The limits of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of cgroups. Cgroups of users and containers may use an additional eighth.
    pub cgroups: usize,
    /// The maximum number of levels below the first cgroup.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cgroups: 16_384, depth: 64 }
    }
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The cgroups, each parent before its children. Subtrees of the system come first; within a subtree, upper levels
    /// come first.
    pub cgroups: Vec<Cgroup>,
    /// The number of cgroups beyond the limits. Their descendants are not counted.
    pub beyond: usize,
    /// The number of cgroups that cannot be read or listed.
    pub unreadable: usize,
}

/// A pending visit of a directory.
struct Visit {
    directory: PathBuf,
    path: CgroupPath,
    depth: usize,
}

/// Returns the cgroup at a directory and its descendants down to a depth. Skips directories that vanish during the
/// walk, other file systems and symbolic links.
///
/// `queues` hold the pending visits and select the cgroups that a walk leaves out at its limit.
///
/// # Errors
/// If the first directory cannot be read.
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

/// Queues the children of a cgroup. Returns the number of children that are beyond the limit or too deep.
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

/// Returns true if a directory has no subdirectories. The link count of a directory is 2 plus the number of its
/// subdirectories. Most cgroups are leaves, and listing their dozens of files is most of the cost of a walk.
fn is_leaf(metadata: &fs::Metadata) -> bool {
    metadata.nlink() == 2
}

impl Visit {
    fn below(&self, name: &OsStr) -> Self {
        Self { directory: self.directory.join(name), path: self.path.child(name.as_bytes()), depth: self.depth + 1 }
    }
}
