//! The kernel's files about cgroups and processes, through the reader.

use std::{io, time::Duration};

use super::{Cgroup, CgroupId, CgroupPath, Hierarchy, Limits, Scan, Service, UsageError};
#[cfg(any(test, feature = "testing"))]
use crate::reader;
use crate::reader::{
    CountAllThreads, CountThreads, FindProcess, FindService, Held, InNamespaces, Inode, Namespace, Reader, RootThreads,
    Usages, message,
};

/// The id of a cgroup, and the time for which its CPU quota throttled its tasks; `None` without a quota.
pub type Throttled = Result<(CgroupId, Option<Duration>), UsageError>;

/// The kernel's files about cgroups and processes.
#[derive(Clone)]
pub struct Files {
    hierarchy: Hierarchy,
    reader: Reader,
}

impl Files {
    /// Files that the reader reads.
    #[must_use]
    pub const fn through(reader: Reader, hierarchy: Hierarchy) -> Self {
        Self { hierarchy, reader }
    }

    /// The hierarchy of cgroups.
    #[must_use]
    pub const fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Replaces a reader that does not respond.
    pub fn maintain(&self) {
        self.reader.maintain();
    }

    /// How often the reader was replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.reader.replaced()
    }

    /// Every cgroup within the limits; see [`Hierarchy::scan`].
    ///
    /// # Errors
    /// If the mount point cannot be read, or the reader does not respond.
    pub fn scan(&self, limits: Limits) -> io::Result<Scan> {
        let (places, beyond, unreadable) =
            self.reader.files(message::Scan { cgroups: limits.cgroups, depth: limits.depth })?;
        let cgroup = |(id, path): (u64, Vec<u8>)| Cgroup { id: CgroupId(id), path: CgroupPath::new(&path) };
        Ok(Scan { cgroups: places.into_iter().map(cgroup).collect(), beyond, unreadable })
    }

    /// False for each cgroup that is gone, in the order of the cgroups; see [`Hierarchy::holds`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn held(&self, cgroups: &[(CgroupId, CgroupPath)]) -> io::Result<Vec<bool>> {
        self.reader.files_in_parts(cgroups, length, |part| Held { cgroups: places(part) })
    }

    /// The CPU time of each cgroup, read in the order of the cgroups; see [`Hierarchy::usage`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn usages(&self, cgroups: &[(CgroupId, CgroupPath)]) -> io::Result<Vec<Result<Duration, UsageError>>> {
        self.reader.files_in_parts(cgroups, length, |part| Usages { cgroups: places(part) })
    }

    /// The number of threads of each cgroup and its descendants, in the order of the cgroups; see [`Hierarchy::threads`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn threads(&self, cgroups: &[(CgroupId, CgroupPath)]) -> io::Result<Vec<Result<u64, UsageError>>> {
        self.reader.files_in_parts(cgroups, length, |part| CountThreads { cgroups: places(part) })
    }

    /// The number of threads of all processes and of the kernel.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn all_threads(&self) -> io::Result<u64> {
        self.reader.files(CountAllThreads {})
    }

    /// The run time of each thread in the root cgroup; see [`Hierarchy::root_threads`].
    ///
    /// # Errors
    /// If [`Hierarchy::root_threads`] fails, or the reader does not respond.
    pub fn root_threads(&self) -> io::Result<Vec<(u32, Duration)>> {
        self.reader.files(RootThreads {})
    }

    /// The id and the throttled time of each cgroup; without an id, of the cgroup that has the path now. See
    /// [`Hierarchy::throttled`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn throttled(&self, cgroups: &[(Option<CgroupId>, &CgroupPath)]) -> io::Result<Vec<Throttled>> {
        let key = |(id, path): &(Option<CgroupId>, &CgroupPath)| (id.map(|id| id.0), path.as_bytes().to_vec());
        let request =
            |part: &[(Option<CgroupId>, &CgroupPath)]| message::Throttled { cgroups: part.iter().map(key).collect() };
        let throttled = self.reader.files_in_parts(cgroups, |(_, path)| path.as_bytes().len(), request)?;
        Ok(throttled.into_iter().map(|one| one.map(|(id, time)| (CgroupId(id), time))).collect())
    }

    /// A process of a cgroup, or of a cgroup below it, and the inode of its network namespace if that is known; `None` if
    /// there is no process.
    ///
    /// # Errors
    /// If the cgroup is gone, or the reader does not respond.
    pub fn process(&self, path: &CgroupPath) -> io::Result<Option<(u32, Option<u64>)>> {
        self.reader.files(FindProcess { path: path.as_bytes().to_vec() })
    }

    /// Returns false for each cgroup without a process in the network namespace of this inode. Returns true for every
    /// cgroup while the reader does not respond.
    #[must_use]
    pub fn in_namespaces(&self, claims: &[(&CgroupPath, u32)]) -> Vec<bool> {
        let claim = |(path, inode): &(&CgroupPath, u32)| (path.as_bytes().to_vec(), *inode);
        let request = |part: &[(&CgroupPath, u32)]| InNamespaces { claims: part.iter().map(claim).collect() };
        let held = self.reader.files_in_parts(claims, |(path, _)| path.as_bytes().len(), request);
        held.unwrap_or_else(|_| vec![true; claims.len()])
    }

    /// Returns the inode number of the network namespace of a process.
    ///
    /// # Errors
    /// If the process has ended, or the reader does not respond.
    pub fn namespace(&self, process: u32) -> io::Result<u64> {
        self.reader.files(Namespace { process })
    }

    /// Returns the inode number of the network namespace with this index in the packet filter.
    ///
    /// # Errors
    /// The kernel's refusal, or if the reader does not respond.
    pub fn inode(&self, index: usize) -> io::Result<u64> {
        self.reader.files(Inode { index })
    }

    /// The service that a process of a cgroup names in its environment. Another user may delay it up to a deadline. The future does not
    /// borrow from the files.
    ///
    /// # Errors
    /// If the environment cannot be read, or not in time, or if the process has left the cgroup.
    pub fn service(&self, process: u32, path: &CgroupPath) -> impl Future<Output = io::Result<Service>> + Send + use<> {
        let (foreign, path) = (self.reader.foreign(), path.as_bytes().to_vec());
        async move { foreign.call(FindService { process, path }).await.map(|(service, _)| service) }
    }
}

/// Files for tests: a reader in this process reads them.
#[cfg(any(test, feature = "testing"))]
impl Files {
    /// Files of a hierarchy.
    #[must_use]
    pub fn local(hierarchy: Hierarchy) -> Self {
        let places = reader::Places { hierarchy: Some(hierarchy.clone()), ..reader::Places::default() };
        Self::through(reader::testing::reader(places), hierarchy)
    }
}

fn places(cgroups: &[(CgroupId, CgroupPath)]) -> Vec<(u64, Vec<u8>)> {
    cgroups.iter().map(|(id, path)| (id.0, path.as_bytes().to_vec())).collect()
}

fn length((_, path): &(CgroupId, CgroupPath)) -> usize {
    path.as_bytes().len()
}

#[cfg(test)]
mod tests {
    use super::Files;
    use crate::cgroup::testing::{Tree, hierarchies};

    #[tokio::test]
    async fn a_service_belongs_to_the_cgroup_in_which_its_process_stays() {
        for hierarchy in hierarchies() {
            let Some(tree) = Tree::create(&hierarchy) else { return };
            let [one, other] = [b"one".as_slice(), b"other"].map(|name| tree.make(name));
            let _burner = tree.burn(&one);
            let files = Files::local(hierarchy);
            let (process, _) = files.process(&one).expect("a reader").expect("a process");
            assert!(files.service(process, &one).await.is_ok());
            let moved = files.service(process, &other).await.expect_err("another cgroup").to_string();
            assert!(moved.contains("has moved"), "{moved}");
        }
    }
}
