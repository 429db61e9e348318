//! Requests to the reader, and its replies.

use std::{io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Endpoint, FoundSockets, Refusal, Service, SocketPaths};
use crate::{cgroup::UsageError, files::FileIdentity, sysfs::Meters};

/// A cgroup: its id and the bytes of its path.
pub type CgroupKey = (u64, Vec<u8>);

/// A request that reads only files of the kernel. No user can delay its reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FileRequest {
    /// Walk the cgroup tree, with the maximum number of cgroups and levels. The reply is [`FileReply::Scan`].
    Scan(usize, usize),
    /// Check which of these cgroups still exist. The reply is [`FileReply::Held`].
    Held(Vec<CgroupKey>),
    /// Read the CPU time of these cgroups. The reply is [`FileReply::Usages`].
    Usages(Vec<CgroupKey>),
    /// Read the run time of the root cgroup's threads. The reply is [`FileReply::Threads`].
    RootThreads,
    /// Read the throttled time of these cgroups. Without an id, the cgroup that currently has the path is read. The
    /// reply is [`FileReply::Throttled`].
    Throttled(Vec<(Option<u64>, Vec<u8>)>),
    /// Find a process of a cgroup. The reply is [`FileReply::Process`].
    Process(Vec<u8>),
    /// Check whether a process of each cgroup is in the network namespace of this inode. The reply is [`FileReply::Held`].
    InNamespaces(Vec<(Vec<u8>, u32)>),
    /// Read the network namespace of a process. The reply is [`FileReply::Inode`].
    Namespace(u32),
    /// Read the inode of a file that the configuration names. The reply is [`FileReply::Inode`].
    Inode(PathBuf),
    /// Read the power meters of the node. The reply is [`FileReply::PowerMeters`].
    PowerMeters,
}

/// A reply to a [`FileRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FileReply {
    /// The cgroups, each parent before its children; the number beyond the limits; the number of unreadable ones.
    Scan(Vec<CgroupKey>, usize, usize),
    /// True for each cgroup that exists, or that is in the namespace, in the order of the request.
    Held(Vec<bool>),
    /// CPU time by cgroup, in the order of the request.
    Usages(Vec<Result<Duration, UsageError>>),
    /// Run time by thread.
    Threads(Vec<(u32, Duration)>),
    /// Ids and throttled time by cgroup, in the order of the request.
    Throttled(Vec<Result<(u64, Option<Duration>), UsageError>>),
    /// A process and the inode number of its network namespace, if known.
    Process(Option<u32>, Option<u64>),
    /// An inode.
    Inode(u64),
    /// The power meters.
    PowerMeters(Meters),
    /// The request failed.
    Failed(String),
}

/// A request that may block on other users' processes or file systems.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ForeignRequest {
    /// Read the service that a process names in its environment. The reply is [`ForeignReply::Service`].
    Service(u32),
    /// Search for the sockets of container runtimes. The reply is [`ForeignReply::FoundSockets`].
    FoundSockets(SocketPaths),
    /// Connect to the socket of a container runtime. The reply is [`ForeignReply::Connected`], with the connection.
    Connect(Endpoint),
    /// Open the file of an output again if another file has its path. The number is the index of the file in the
    /// configuration, because the worker may not choose a path. The reply is [`ForeignReply::Opened`] or
    /// [`ForeignReply::Unchanged`].
    Open(usize, FileIdentity),
}

/// A reply to a [`ForeignRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ForeignReply {
    /// The service of a process.
    Service(Service),
    /// The sockets that were found.
    FoundSockets(FoundSockets),
    /// A connection, or the reason why it failed.
    Connected(Result<(), ConnectError>),
    /// The file of an output, with its descriptor.
    Opened,
    /// The file of an output has its path still.
    Unchanged,
    /// All threads of the reader are busy.
    Busy,
    /// The request failed.
    Failed(String),
}

/// The reason why a socket is not connected, in the format between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectError {
    /// The socket is not trusted.
    Refused(Refusal),
    /// The kernel's error number.
    Kernel(i32),
    /// Another failure.
    Other(String),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        let refusal = error.get_ref().and_then(|cause| cause.downcast_ref::<Refusal>());
        match (refusal, error.raw_os_error()) {
            (Some(refusal), _) => Self::Refused(*refusal),
            (None, Some(number)) => Self::Kernel(number),
            (None, None) => Self::Other(error.to_string()),
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused(refusal) => refusal.into(),
            ConnectError::Kernel(number) => Self::from_raw_os_error(number),
            ConnectError::Other(text) => Self::other(text),
        }
    }
}
