//! The reader: a process that reads `/proc`, cgroups and runtime sockets of other users for the worker. Contains the
//! worker's client, too.

use undercurrent_base::{causes, environment, files, text};
use undercurrent_channel as channel;
use undercurrent_host::{cgroup, ksoftirqd, load, process_usage, sysfs};
use undercurrent_telemetry as telemetry;

mod client;
mod endpoint;
mod environ;
mod exchange;
pub mod message;
mod node;
mod serve;
mod socket_paths;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::{
    client::{Foreign, Reader, StartReader},
    endpoint::{Endpoint, Owner, Refusal},
    environ::{EnvironError, Service},
    exchange::Query,
    message::{
        CountAllThreads, CountThreads, Exchange, ExchangeError, FileRequest, FindProcess, FindService, FindSockets,
        ForeignRequest, Held, InNamespaces, Inode, Namespace, Open, OpenOrConnect, RootThreads, Usages,
    },
    node::{PowerMeters, SoftirqThreads, usages_of_parts},
    serve::{Places, inode, serve, serve_outputs},
    socket_paths::{FoundSockets, SocketPaths},
};
