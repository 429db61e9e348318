//! Processes of a cgroup and their network namespaces.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use super::{
    Hierarchy, is_gone,
    walk::{Queues, walk},
};
use crate::cgroup::CgroupPath;

/// The maximum number of cgroups and of levels in a search for a process.
const LOOKED_INTO: usize = 64;

/// The maximum number of processes that are read to verify a claim to a network namespace.
const CLAIMANTS: usize = 64;

impl Hierarchy {
    /// Returns false if no process of a cgroup is in a network namespace. Returns true if the processes cannot be read.
    #[must_use]
    pub fn is_in_namespace(&self, path: &CgroupPath, inode: u32) -> bool {
        let processes = match self.processes(path, CLAIMANTS) {
            Ok(processes) => processes,
            Err(error) => return !is_gone(&error),
        };
        processes.into_iter().any(|pid| match netns_of(pid) {
            Ok(found) => found == u64::from(inode),
            Err(error) => !has_ended(&error),
        })
    }

    /// Returns at most `most` processes of a cgroup. If the cgroup has no processes, returns the processes of the first
    /// descendant that has some: on version 2, a cgroup that enables controllers for its children has no processes.
    /// Leaves out processes of other pid namespaces, because they have no pid here.
    ///
    /// # Errors
    /// If the cgroup has been removed, or its processes cannot be read.
    pub fn processes(&self, path: &CgroupPath, most: usize) -> io::Result<Vec<u32>> {
        let directory = self.directory(path)?;
        let own = read_ids(&directory, most)?;
        if !own.is_empty() {
            return Ok(own);
        }
        let below =
            walk(directory, path.clone(), LOOKED_INTO, Queues::single(LOOKED_INTO))?.cgroups.into_iter().skip(1);
        for cgroup in below {
            match read_ids(&self.directory(&cgroup.path)?, most) {
                Ok(some) if !some.is_empty() => return Ok(some),
                Ok(_) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Vec::new())
    }
}

fn read_ids(directory: &Path, most: usize) -> io::Result<Vec<u32>> {
    let mut processes = Vec::new();
    let mut lines = BufReader::new(File::open(directory.join("cgroup.procs"))?).lines();
    while processes.len() < most
        && let Some(line) = lines.next()
    {
        match line {
            Ok(line) => processes.extend(line.parse().ok().filter(|pid: &u32| *pid != 0)),
            // A threaded cgroup lists no processes (`EOPNOTSUPP`); the threaded domain above lists them.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(processes)
}

/// Returns true if a file of a process cannot be read because the process has ended.
pub(super) fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns the inode number of the network namespace of a process.
///
/// # Errors
/// If the process has ended, or another user owns it and this process lacks `CAP_SYS_PTRACE`.
pub fn netns_of(pid: u32) -> io::Result<u64> {
    // `stat` on the link would make the kernel allocate an inode on each call; `readlink` does not.
    let target = fs::read_link(format!("/proc/{pid}/ns/net"))?;
    namespace(target.as_os_str().as_bytes())
        .ok_or_else(|| io::Error::other(format!("`{}` is not a network namespace", target.display())))
}

/// Parses the link target of a network namespace: `net:[4026531840]` (`ns_get_name` in fs/nsfs.c).
fn namespace(target: &[u8]) -> Option<u64> {
    let digits = target.strip_prefix(b"net:[")?.strip_suffix(b"]")?;
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_of_a_namespace_is_in_its_link() {
        assert_eq!(namespace(b"net:[4026531840]"), Some(4_026_531_840));
        for other in ["", "net:[]", "net:[-1]", "pid:[4026531836]", "net:[4026531840", "net:[18446744073709551616]"] {
            assert_eq!(namespace(other.as_bytes()), None, "{other}");
        }
    }
}
