//! What a test and its workers say to each other: one message a packet, with a descriptor where one goes along.

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

/// More than any message takes.
const ROOM: usize = 4096;
/// How long either side waits for the other; a worker that is asked nothing for that long ends.
const IDLE: Duration = Duration::from_secs(20);

/// What a worker is asked. Sockets go by their numbers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// To move into cgroups, by their directories.
    Join(Vec<PathBuf>),
    /// To make a socket; TCP's listens.
    Bind(Transport, IpAddr),
    /// To take a listening socket's next connection.
    Accept(usize),
    /// To read so many messages, and to answer each.
    Answer(usize, usize),
    /// The same, and to say what TCP then says of the connection's round-trip time. Every message is looked at first.
    Time(usize, usize),
    /// To pass a descriptor on.
    Give(usize),
    /// To take over the descriptor that comes with this.
    Take,
    /// To become another process, which is passed the sockets as systemd passes them.
    Activate,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Socket(usize),
    Bound(usize, SocketAddr),
    /// Microseconds.
    Times(Vec<u32>),
}

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Where workers come to be asked.
pub fn listen(path: &Path) -> OwnedFd {
    let listener = socket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    listener
}

/// Waits for a worker.
pub fn accept(listener: &OwnedFd) -> OwnedFd {
    await_input(listener);
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).unwrap()
}

/// Goes to be asked.
pub fn connect(path: &Path) -> OwnedFd {
    let socket = socket();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Says something.
pub fn send(to: &OwnedFd, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if let Some(descriptor) = &descriptor {
        assert!(control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor))));
    }
    let text = serde_json::to_vec(message).unwrap();
    sendmsg(to, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Waits for what the other side says; `None` where it has ended.
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
    assert_eq!(ready, 1, "nobody said anything for {IDLE:?}");
}
