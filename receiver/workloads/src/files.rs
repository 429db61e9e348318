//! The kernel's files about cgroups and processes, read in this process or through the reader.

use std::{io, path::Path, time::Duration};

use super::{Cgroup, CgroupId, CgroupPath, Hierarchy, Limits, Scan, Service, UsageError, netns_of};
use crate::reader::{self, FileReply, FileRequest, ForeignReply, ForeignRequest, Reader};

/// The longest time for another process's environment.
const ENVIRONMENT: Duration = Duration::from_secs(2);

/// The id of a cgroup, and the time for which its CPU quota throttled its tasks; `None` without a quota.
pub type Throttled = Result<(CgroupId, Option<Duration>), UsageError>;

/// The kernel's files about cgroups and processes.
#[derive(Clone)]
pub struct Files {
    hierarchy: Hierarchy,
    reader: Option<Reader>,
}

impl Files {
    /// Files that the reader reads.
    #[must_use]
    pub const fn through(reader: Reader, hierarchy: Hierarchy) -> Self {
        Self { hierarchy, reader: Some(reader) }
    }

    /// Files that this process reads.
    #[must_use]
    pub const fn here(hierarchy: Hierarchy) -> Self {
        Self { hierarchy, reader: None }
    }

    /// The hierarchy of cgroups.
    #[must_use]
    pub const fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Replaces a reader that does not respond.
    pub fn maintain(&self) {
        self.reader.iter().for_each(Reader::maintain);
    }

    /// How often the reader was replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::replaced)
    }

    /// Every cgroup within the limits; see [`Hierarchy::scan`].
    ///
    /// # Errors
    /// If the mount point cannot be read, or the reader does not respond.
    pub fn scan(&self, limits: Limits) -> io::Result<Scan> {
        let Some(reader) = &self.reader else { return self.hierarchy.scan(limits) };
        let FileReply::Scan(places, beyond, unreadable) =
            reader.files(&FileRequest::Scan(limits.cgroups, limits.depth))?
        else {
            return Err(unexpected());
        };
        let cgroup = |(id, path): (u64, Vec<u8>)| Cgroup { id: CgroupId(id), path: CgroupPath::new(&path) };
        Ok(Scan { cgroups: places.into_iter().map(cgroup).collect(), beyond, unreadable })
    }

    /// False for each cgroup that is gone, in the order of the cgroups; see [`Hierarchy::holds`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn held(&self, cgroups: &[(CgroupId, CgroupPath)]) -> io::Result<Vec<bool>> {
        let Some(reader) = &self.reader else {
            return Ok(cgroups.iter().map(|(id, path)| self.hierarchy.holds(*id, path)).collect());
        };
        match reader.files(&FileRequest::Held(places(cgroups)))? {
            FileReply::Held(held) if held.len() == cgroups.len() => Ok(held),
            _ => Err(unexpected()),
        }
    }

    /// The CPU time of each cgroup, read in the order of the cgroups; see [`Hierarchy::usage`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn usages(&self, cgroups: &[(CgroupId, CgroupPath)]) -> io::Result<Vec<Result<Duration, UsageError>>> {
        let Some(reader) = &self.reader else {
            return Ok(cgroups.iter().map(|(id, path)| self.hierarchy.usage(*id, path)).collect());
        };
        match reader.files(&FileRequest::Usages(places(cgroups)))? {
            FileReply::Usages(usages) if usages.len() == cgroups.len() => Ok(usages),
            _ => Err(unexpected()),
        }
    }

    /// The run time of each thread in the root cgroup; see [`Hierarchy::root_threads`].
    ///
    /// # Errors
    /// If [`Hierarchy::root_threads`] fails, or the reader does not respond.
    pub fn root_threads(&self) -> io::Result<Vec<(u32, Duration)>> {
        let Some(reader) = &self.reader else { return self.hierarchy.root_threads() };
        match reader.files(&FileRequest::RootThreads)? {
            FileReply::Threads(threads) => Ok(threads),
            _ => Err(unexpected()),
        }
    }

    /// The id and the throttled time of each cgroup; without an id, of the cgroup that has the path now. See
    /// [`Hierarchy::throttled`].
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn throttled(&self, cgroups: &[(Option<CgroupId>, &CgroupPath)]) -> io::Result<Vec<Throttled>> {
        let Some(reader) = &self.reader else {
            let throttled = |(id, path): &(Option<CgroupId>, &CgroupPath)| {
                let id = id.map_or_else(|| self.hierarchy.id(path).map_err(|_| UsageError::Gone), Ok)?;
                Ok((id, self.hierarchy.throttled(id, path)?))
            };
            return Ok(cgroups.iter().map(throttled).collect());
        };
        let places = cgroups.iter().map(|(id, path)| (id.map(|id| id.0), path.as_bytes().to_vec())).collect();
        match reader.files(&FileRequest::Throttled(places))? {
            FileReply::Throttled(all) if all.len() == cgroups.len() => {
                Ok(all.into_iter().map(|one| one.map(|(id, time)| (CgroupId(id), time))).collect())
            }
            _ => Err(unexpected()),
        }
    }

    /// A process of a cgroup, or of a cgroup below it, and the inode of its network namespace if that is known; `None` if
    /// there is no process.
    ///
    /// # Errors
    /// If the cgroup is gone, or the reader does not respond.
    pub fn process(&self, path: &CgroupPath) -> io::Result<Option<(u32, Option<u64>)>> {
        let Some(reader) = &self.reader else {
            let process = self.hierarchy.processes(path, 1)?.first().copied();
            return Ok(process.map(|process| (process, netns_of(process).ok())));
        };
        match reader.files(&FileRequest::Process(path.as_bytes().to_vec()))? {
            FileReply::Process(process, namespace) => Ok(process.map(|process| (process, namespace))),
            _ => Err(unexpected()),
        }
    }

    /// Returns false for each cgroup without a process in the network namespace of this inode. Returns true for every
    /// cgroup while the reader does not respond.
    #[must_use]
    pub fn in_namespaces(&self, claims: &[(&CgroupPath, u32)]) -> Vec<bool> {
        let Some(reader) = &self.reader else {
            return claims.iter().map(|(path, inode)| self.hierarchy.is_in_namespace(path, *inode)).collect();
        };
        let request = claims.iter().map(|(path, inode)| (path.as_bytes().to_vec(), *inode)).collect();
        match reader.files(&FileRequest::InNamespaces(request)) {
            Ok(FileReply::Held(held)) if held.len() == claims.len() => held,
            _ => vec![true; claims.len()],
        }
    }

    /// Returns the inode number of the network namespace of a process.
    ///
    /// # Errors
    /// If [`netns_of`] fails, or the reader does not respond.
    pub fn namespace(&self, process: u32) -> io::Result<u64> {
        match &self.reader {
            None => netns_of(process),
            Some(reader) => inode(reader.files(&FileRequest::Namespace(process))?),
        }
    }

    /// Returns the inode number of a file that the configuration names.
    ///
    /// # Errors
    /// The kernel's refusal, or if the reader does not respond.
    pub fn inode(&self, path: &Path) -> io::Result<u64> {
        match &self.reader {
            None => reader::inode(path),
            Some(reader) => inode(reader.files(&FileRequest::Inode(path.to_owned()))?),
        }
    }

    /// The service that a process names in its environment. Another user may delay it up to a deadline. The future does not
    /// borrow from the files.
    ///
    /// # Errors
    /// If the environment cannot be read, or not in time.
    pub fn service(&self, process: u32) -> impl Future<Output = io::Result<Service>> + Send + use<> {
        let foreign = self.reader.as_ref().map(Reader::foreign);
        async move {
            let Some(foreign) = foreign else { return Service::of_process(process).map_err(io::Error::other) };
            match foreign.call(&ForeignRequest::Service(process), ENVIRONMENT).await? {
                (ForeignReply::Service(service), _) => Ok(service),
                _ => Err(unexpected()),
            }
        }
    }
}

fn places(cgroups: &[(CgroupId, CgroupPath)]) -> Vec<(u64, Vec<u8>)> {
    cgroups.iter().map(|(id, path)| (id.0, path.as_bytes().to_vec())).collect()
}

fn inode(reply: FileReply) -> io::Result<u64> {
    match reply {
        FileReply::Inode(inode) => Ok(inode),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> io::Error {
    io::Error::other("the reader sent an unexpected reply")
}
