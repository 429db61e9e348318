//! The reader: a process that reads `/proc`, cgroups and runtime sockets of other users for the worker. Contains the
//! worker's client, too.

mod client;
mod endpoint;
mod environ;
mod message;
mod meters;
mod serve;
mod socket_paths;

pub use self::{
    client::{Foreign, Reader},
    endpoint::{Endpoint, Owner, Refusal},
    environ::{EnvironError, Service},
    message::{ConnectError, FileReply, FileRequest, ForeignReply, ForeignRequest},
    meters::PowerMeters,
    serve::{Places, inode, serve},
    socket_paths::{FoundSockets, SocketPaths},
};
