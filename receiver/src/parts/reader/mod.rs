//! The reader: reads `/proc`, cgroups and runtime sockets of others for the worker.

mod client;
mod message;
mod serve;

pub use self::{
    client::{Foreign, Reader},
    message::{FileReply, FileRequest, ForeignReply, ForeignRequest},
    serve::{inode, serve},
};
