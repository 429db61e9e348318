//! Messages between a test and its workers: one message per packet, optionally with a descriptor.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, poll},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{super::support::surroundings::patience, sockets::Transport};

/// More bytes than any message has.
const ROOM: usize = 4096;
/// The timeout of both sides. A worker without an order for this time ends.
const IDLE: Duration = Duration::from_secs(20);

/// An order for a worker. Sockets are identified by their index.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Move into cgroups, by their directories.
    Join(Vec<PathBuf>),
    /// Create a socket; a TCP socket listens.
    Bind(Transport, IpAddr),
    /// Accept the next connection of a listening socket.
    Accept(usize),
    /// Read this number of messages, and reply to each.
    Answer(usize, usize),
    /// Read and answer messages, and return the connection's round-trip time from TCP after each read. The worker
    /// peeks at each message first.
    Time(usize, usize),
    /// Open a raw socket that gets the TCP segments to an address.
    Overhear(IpAddr),
    /// Connect to an address.
    Connect(SocketAddr),
    /// Connect to an address that refuses.
    Refused(SocketAddr),
    /// Connect to an address that does not answer within a time.
    Unanswered(SocketAddr, Duration),
    /// Send to the other end of a connection, which does not answer within a time.
    Abandoned(usize, Duration),
    /// Take turns with the other end of a connection, and return the time of each in nanoseconds.
    Converse(usize, Turns),
    /// Shut down the sending side of a connection.
    Finish(usize),
    /// Close a connection.
    Close(usize),
    /// Send a descriptor of a socket.
    Give(usize),
    /// Receive the descriptor that comes with this message.
    Take,
    /// Execute the worker again, with the sockets passed as systemd passes them.
    Activate,
}

/// The turns of one end of a connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Turns {
    /// Number of turns.
    pub count: usize,
    /// True if this end writes first.
    pub asks: bool,
    /// Bytes to read.
    pub reads: usize,
    /// The time before the first write.
    pub delay: Duration,
    /// Number of writes.
    pub pieces: usize,
    /// Bytes of each write.
    pub writes: usize,
    /// The time between two writes.
    pub pause: Duration,
}

/// A worker's reply.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Socket(usize),
    Bound(usize, SocketAddr),
    /// Times in microseconds.
    Times(Vec<u32>),
    /// Times in nanoseconds: of one that asks from the first write to the last read, of the other from the last read to the first write.
    Turns(Vec<u64>),
}

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Creates the socket to which workers connect.
pub fn listen(path: &Path) -> OwnedFd {
    let listener = socket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    listener
}

/// Waits for a worker's connection.
pub fn accept(listener: &OwnedFd) -> OwnedFd {
    await_input(listener);
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).unwrap()
}

/// Connects to the test.
pub fn connect(path: &Path) -> OwnedFd {
    let socket = socket();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Sends a message.
pub fn send(to: &OwnedFd, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if let Some(descriptor) = &descriptor {
        assert!(control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor))));
    }
    let text = serde_json::to_vec(message).unwrap();
    sendmsg(to, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Waits for a message; returns `None` after the other side has ended.
pub fn receive<T: DeserializeOwned>(from: &OwnedFd) -> Option<(T, Option<OwnedFd>)> {
    await_input(from);
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut text = [0; ROOM];
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.flatten().next();
    (got.bytes > 0).then(|| (serde_json::from_slice(&text[..got.bytes]).unwrap(), descriptor))
}

fn await_input(of: &OwnedFd) {
    let limit = patience(IDLE).try_into().unwrap();
    let ready = poll(&mut [PollFd::new(of, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "no message within {IDLE:?}");
}
