//! Walking a tree of cgroups.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
};

use super::{Cgroup, is_gone};
use crate::workloads::{CgroupId, CgroupPath};

/// How far a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cgroups at most.
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
    /// Every cgroup, a parent before its children, upper levels first.
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

/// Every cgroup from the one of this directory and path downwards. What vanishes meanwhile is left out, and so is what
/// another file system covers; links are not followed.
///
/// # Errors
/// Where the first directory cannot be read.
pub fn walk(directory: PathBuf, path: CgroupPath, limits: Limits) -> io::Result<Scan> {
    let device = fs::symlink_metadata(&directory)?.dev();
    let mut scan = Scan::default();
    let mut queue = VecDeque::from([Visit { directory, path, depth: 0 }]);
    while let Some(visit) = queue.pop_front() {
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
        let room = limits.cgroups.saturating_sub(scan.cgroups.len() + queue.len());
        let room = if visit.depth < limits.depth { room } else { 0 };
        match list(&visit, room) {
            Ok((below, beyond)) => {
                queue.extend(below);
                scan.beyond += beyond;
            }
            Err(error) if is_gone(&error) => {}
            Err(_) => scan.unreadable += 1,
        }
    }
    Ok(scan)
}

/// What is directly below a cgroup, at most `room` of it, and how much more there is.
fn list(visit: &Visit, room: usize) -> io::Result<(Vec<Visit>, usize)> {
    let (mut below, mut beyond) = (Vec::new(), 0);
    for entry in fs::read_dir(&visit.directory)? {
        let entry = entry?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if below.len() < room {
            below.push(visit.below(&entry.file_name()));
        } else {
            beyond += 1;
        }
    }
    Ok((below, beyond))
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
