//! Requests to the reader, and its replies.

use std::{io, path::PathBuf, time::Duration};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use undercurrent_channel::calls;

use super::{FoundSockets, Query, Refusal, Service};
use crate::{cgroup::UsageError, files::FileIdentity, process_usage::ProcessUsage, sysfs::Meters};

/// A cgroup: its id and the bytes of its path.
pub type CgroupKey = (u64, Vec<u8>);

/// The time limit of a request that reads only files of the kernel.
const FILES: Duration = Duration::from_secs(5);
/// The time limit of a request for another process's environment, and of one that opens a file of the configuration: file systems
/// of the network can be slow.
const ENVIRONMENT: Duration = Duration::from_secs(2);
/// The time limit of a query to a runtime.
pub const EXCHANGE: Duration = Duration::from_secs(2);
/// The time limit of a search for sockets. A search that hangs holds one thread of the reader, and no other search starts meanwhile.
const SEARCH: Duration = Duration::from_secs(600);

calls! {
    /// A request that reads only files of the kernel. No user can delay its reply.
    pub enum FileRequest {
        /// Walk the cgroup tree. Returns the cgroups, each parent before its children; the number beyond the limits; the number of
        /// unreadable ones.
        Scan {
            /// The maximum number of cgroups.
            cgroups: usize,
            /// The maximum number of levels.
            depth: usize,
        } -> (Vec<CgroupKey>, usize, usize), within FILES;
        /// Check which of these cgroups still exist.
        Held {
            /// The cgroups.
            cgroups: Vec<CgroupKey>,
        } -> Vec<bool>, within FILES;
        /// Read the CPU time of these cgroups.
        Usages {
            /// The cgroups.
            cgroups: Vec<CgroupKey>,
        } -> Vec<Result<Duration, UsageError>>, within FILES;
        /// Read the run time of the root cgroup's threads. Returns run times by thread.
        RootThreads {} -> Vec<(u32, Duration)>, within FILES;
        /// Read the throttled time of these cgroups. Returns their ids and times; no time without a quota.
        Throttled {
            /// The cgroups. Without an id, the cgroup that currently has the path is read.
            cgroups: Vec<(Option<u64>, Vec<u8>)>,
        } -> Vec<Result<(u64, Option<Duration>), UsageError>>, within FILES;
        /// Count the threads of these cgroups and their descendants.
        CountThreads {
            /// The cgroups.
            cgroups: Vec<CgroupKey>,
        } -> Vec<Result<u64, UsageError>>, within FILES;
        /// Count the threads of all processes and of the kernel.
        CountAllThreads {} -> u64, within FILES;
        /// Find a process of a cgroup. Returns it and the inode number of its network namespace, if known.
        FindProcess {
            /// The path of the cgroup.
            path: Vec<u8>,
        } -> Option<(u32, Option<u64>)>, within FILES;
        /// Check whether a process of each cgroup is in a network namespace.
        InNamespaces {
            /// The paths of cgroups, and inode numbers of namespaces.
            claims: Vec<(Vec<u8>, u32)>,
        } -> Vec<bool>, within FILES;
        /// Read the inode number of a process's network namespace.
        Namespace {
            /// The process id.
            process: u32,
        } -> u64, within FILES;
        /// Read the inode number of a network namespace that the packet filter names.
        Inode {
            /// Its index in the filter, because the worker may not choose a path.
            index: usize,
        } -> u64, within FILES;
        /// Read the power meters of the node. Two readings have a minimum distance: a fast reader of a power meter can find secrets of
        /// other processes (Lipp et al., "PLATYPUS", 2021).
        ReadMeters {} -> Meters, within FILES;
        /// Read for how long the kernel's thread for softirqs of each CPU was ready to run and waited for the CPU. Returns the waits by CPU.
        ReadSoftirqThreads {} -> Vec<(u32, Duration)>, within FILES;
        /// Read the CPU time and the memory of parts of the sidecar. Returns one element for each; `None` for other processes.
        ReadPartUsages {
            /// The process ids.
            processes: Vec<u32>,
        } -> Vec<Option<ProcessUsage>>, within FILES;
    }
}

calls! {
    /// A request that may block on other users' processes or file systems.
    pub enum ForeignRequest {
        /// Read the service that a process of a cgroup names in its environment. Fails if the process has left the cgroup after the read: the
        /// first process of a container starts in the cgroup of its engine.
        FindService {
            /// The process id.
            process: u32,
            /// The path of the cgroup.
            path: Vec<u8>,
        } -> Service, within ENVIRONMENT;
        /// Search for the sockets of container runtimes, at the paths that the first process read.
        FindSockets {} -> FoundSockets, within SEARCH;
        /// Send a query to a container runtime. Returns the bytes of the reply.
        Exchange {
            /// The path of the socket, which must be one of the paths that are searched.
            path: PathBuf,
            /// The query.
            query: Query,
        } -> Result<Vec<u8>, ExchangeError>, within EXCHANGE;
        /// Open the file of an output again if another file has its path. Returns true, with a descriptor, if that is so.
        Open {
            /// The index of the file in the configuration, because the worker may not choose a path.
            index: usize,
            /// The identity of the open file.
            identity: FileIdentity,
        } -> bool, within ENVIRONMENT;
        /// Open a file of the configuration (itself, a certificate or a key) for reading, or connect to the collector's socket. Returns a
        /// descriptor.
        OpenOrConnect {
            /// The path, which must be one of the configuration's.
            path: PathBuf,
        } -> (), within ENVIRONMENT;
    }
}

/// The answer to a [`ForeignRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The encoded reply, or the reason why the request failed.
    Reply(Vec<u8>),
    /// All threads of the reader are busy.
    Busy,
}

/// The reason why a runtime did not reply, in the format between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExchangeError {
    /// The socket is not trusted.
    Refused(Refusal),
    /// The kernel's error number.
    Kernel(i32),
    /// Another failure.
    Other(String),
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        let refusal = error.get_ref().and_then(|cause| cause.downcast_ref::<Refusal>());
        match (refusal, error.raw_os_error()) {
            (Some(refusal), _) => Self::Refused(*refusal),
            (None, Some(number)) => Self::Kernel(number),
            (None, None) if error.kind() == io::ErrorKind::TimedOut => Self::Kernel(Errno::TIMEDOUT.raw_os_error()),
            (None, None) => Self::Other(error.to_string()),
        }
    }
}

impl From<ExchangeError> for io::Error {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Refused(refusal) => refusal.into(),
            ExchangeError::Kernel(number) => Self::from_raw_os_error(number),
            ExchangeError::Other(text) => Self::other(text),
        }
    }
}
