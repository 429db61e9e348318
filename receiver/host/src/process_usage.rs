//! The CPU time and the memory of a process of the sidecar.

use procfs::process::{MMapPath, MemoryMap, Process};
use serde::{Deserialize, Serialize};

/// The name of the mapping of a kernel map (`bpf_map_new_fd`, Linux 6.12).
const KERNEL_MAP: &str = "anon_inode:bpf-map";

/// The CPU time and the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// CPU time in user and in system mode, in clock ticks.
    pub times: [u64; 2],
    /// Pages in memory.
    pub resident: u64,
    /// The pages among them that other processes may share.
    pub shared: u64,
    /// The pages among them of kernel maps; zero if the memory of the process is not readable.
    pub maps: u64,
}

impl ProcessUsage {
    /// Reads the usage of this process.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn own() -> procfs::ProcResult<Self> {
        Self::read(&Process::myself()?)
    }

    /// Reads the usage of this process, of its parent, or of another child of the parent: of a part of the sidecar.
    ///
    /// # Errors
    /// If the process has ended, and `NotFound` for a process that is none of these.
    pub fn of_relative(process: u32) -> procfs::ProcResult<Self> {
        let (process, parent) = (Process::new(process.cast_signed())?, Process::myself()?.stat()?.ppid);
        if process.pid != parent && process.stat()?.ppid != parent {
            return Err(procfs::ProcError::NotFound(None));
        }
        Self::read(&process)
    }

    fn read(process: &Process) -> procfs::ProcResult<Self> {
        let (stat, memory) = (process.stat()?, process.statm()?);
        let (resident, shared) = (memory.resident, memory.shared);
        Ok(Self { times: [stat.utime, stat.stime], resident, shared, maps: map_pages(process) })
    }
}

/// Returns the pages of kernel maps that a process has mapped. The kernel maps all pages at once, and counts them as resident
/// (`array_map_mmap` and `remap_vmalloc_range`).
fn map_pages(process: &Process) -> u64 {
    let is_map = |map: &MemoryMap| matches!(&map.pathname, MMapPath::Path(name) if name.as_os_str() == KERNEL_MAP);
    let maps =
        process.maps().map(|maps| maps.into_iter().filter(is_map).map(|map| map.address.1 - map.address.0).sum());
    maps.unwrap_or(0) / procfs::page_size()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    #[test]
    fn only_relatives_have_a_usage() {
        let own = ProcessUsage::of_relative(id()).expect("a usage");
        assert!(own.resident > 0 && own.shared <= own.resident, "{own:?}");
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        ProcessUsage::of_relative(child.id()).expect_err("a child is none");
        ProcessUsage::of_relative(std::os::unix::process::parent_id()).expect("the parent is one");
        child.kill().expect("ended");
        child.wait().expect("an end");
        ProcessUsage::of_relative(1).expect_err("another process is none");
    }
}
