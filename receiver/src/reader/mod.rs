//! The reader: a process that reads `/proc`, cgroups and runtime sockets of others for the worker, and the worker's connection to it.

mod client;
mod endpoint;
mod environ;
mod message;
mod serve;
mod sockets;

pub use self::{
    client::{Foreign, Reader},
    endpoint::{Endpoint, Owner, Refusal},
    environ::{EnvironError, Service},
    message::{ConnectError, FileReply, FileRequest, ForeignReply, ForeignRequest},
    serve::{inode, serve},
    sockets::{Look, Places},
};
