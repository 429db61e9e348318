//! The memory limit of this process's cgroup, for errors about refused memory.

use std::{
    collections::VecDeque,
    fmt, fs,
    path::{Path, PathBuf},
    process,
};

use bytesize::ByteSize;

use super::Mounts;

/// The most cgroups that are searched for this process.
const SEARCHED: usize = 4096;

/// A limit of memory that includes the sidecar's maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The cgroup, by its folder.
    folder: PathBuf,
    /// The limit in bytes.
    limit: u64,
    /// The memory that the cgroup uses, in bytes.
    used: u64,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes).display().iec();
        write!(f, "the cgroup {} uses {} of {}", self.folder.display(), size(self.used), size(self.limit))
    }
}

/// The files of the controller `memory` with the limit and with the use, in versions 2 and 1.
const FILES: [(&str, &str); 2] = [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")];

impl MemoryLimit {
    /// Returns the lowest limit of this process's cgroup and of its parents; `None` without a limit.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Mounts::read().ok()?.memory.and_then(|mount| Self::below(&mount.point))
    }

    /// Returns the limit in a hierarchy. A cgroup namespace hides the path of the own cgroup, so the cgroup is searched by
    /// the process id.
    fn below(root: &Path) -> Option<Self> {
        Self::lowest(root, &search(root, |folder| has_process(folder, process::id()))?)
    }

    /// Returns the lowest limit of a folder and its parents up to the root.
    fn lowest(root: &Path, folder: &Path) -> Option<Self> {
        let below = folder.ancestors().take_while(|folder| folder.starts_with(root));
        below.filter_map(Self::read).min_by_key(|limit| limit.limit)
    }

    fn read(folder: &Path) -> Option<Self> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = FILES.iter().find_map(|(limit, used)| Some((number(limit)?, number(used)?)))?;
        // Version 1 has the largest number of pages in the place of no limit.
        (limit < u64::MAX / 4).then(|| Self { folder: folder.to_owned(), limit, used })
    }
}

fn has_process(folder: &Path, process: u32) -> bool {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    processes.lines().any(|line| line.parse() == Ok(process))
}

/// Searches a hierarchy, parents first.
fn search(root: &Path, is_wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut folders = VecDeque::from([root.to_owned()]);
    for _ in 0..SEARCHED {
        let folder = folders.pop_front()?;
        if is_wanted(&folder) {
            return Some(folder);
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).expect("created");
        for (file, text) in files {
            fs::write(folder.join(file), text).expect("written");
        }
    }

    #[test]
    fn the_lowest_limit_of_the_parents_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let own = process::id().to_string();
        cgroup(root.path(), "kubepods", &[("memory.max", "1000\n"), ("memory.current", "900\n")]);
        cgroup(root.path(), "kubepods/other", &[("memory.max", "5"), ("memory.current", "5"), ("cgroup.procs", "1\n")]);
        let files = [("memory.max", "max"), ("memory.current", "800"), ("cgroup.procs", &*format!("1\n{own}\n"))];
        cgroup(root.path(), "kubepods/pod/container", &files);
        let limit = MemoryLimit::below(root.path()).expect("a limit");
        assert_eq!((limit.folder, limit.limit, limit.used), (root.path().join("kubepods"), 1000, 900));
    }

    #[test]
    fn version_1_has_a_number_for_no_limit() {
        let root = tempfile::tempdir().expect("a folder");
        let own = process::id().to_string();
        let unlimited = [("memory.limit_in_bytes", "9223372036854771712"), ("memory.usage_in_bytes", "7")];
        cgroup(root.path(), "", &unlimited);
        cgroup(
            root.path(),
            "docker",
            &[("cgroup.procs", &*own), ("memory.limit_in_bytes", "64"), ("memory.usage_in_bytes", "60")],
        );
        let limit = MemoryLimit::below(root.path()).expect("a limit");
        assert_eq!((limit.folder, limit.limit), (root.path().join("docker"), 64));
        cgroup(root.path(), "docker", &unlimited);
        assert_eq!(MemoryLimit::below(root.path()), None);
    }
}
