//! Messages between the parts of the sidecar: frames on a pair of Unix stream sockets.
//!
//! A frame is the body's length in bytes as a little-endian `u32`, then the body in the postcard format. Descriptors travel
//! with the length.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// The maximum length of a body. A scan of the largest cgroup tree with long paths has a few megabytes.
const LONGEST: usize = 32 << 20;
/// The maximum number of descriptors in one frame: one for each map.
const DESCRIPTORS: usize = 128;
/// Size of the length field, in bytes.
const HEADER: usize = size_of::<u32>();

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end is closed.
    #[error("the process ended")]
    Closed,
    /// The other end did not reply before the deadline.
    #[error("no reply before the deadline")]
    Timeout,
    /// The message exceeds the maximum length or is not valid postcard.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// A system call failed.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Io(error),
        }
    }
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// One end of a socket pair. Each end has one user at a time.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl From<OwnedFd> for Channel {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0.into()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    /// Creates a pair of connected channels.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixStream::pair().map(|(one, other)| (Self(one), Self(other)))
    }

    /// Duplicates the descriptor of this end.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Limits the time of each read and write.
    ///
    /// # Errors
    /// If the deadline is zero.
    pub fn set_deadline(&self, deadline: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(deadline))?;
        self.0.set_write_timeout(Some(deadline))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`ChannelError`]. A partially sent message leaves the channel unusable.
    pub fn send(&mut self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let body = postcard::to_stdvec(message).map_err(malformed)?;
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LONGEST);
        let length = length.ok_or_else(|| ChannelError::Malformed(format!("{} bytes", body.len())))?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ChannelError::Malformed(format!("{} descriptors", descriptors.len())));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.0.write_all(&length[sent..])?;
        Ok(self.0.write_all(&body)?)
    }

    /// Receives a message.
    ///
    /// # Errors
    /// [`ChannelError`]. Any error leaves the channel unusable.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let (mut header, mut descriptors) = ([0; HEADER], Vec::new());
        let received = receive_with(self.0.as_fd(), &mut header, &mut descriptors)?;
        self.0.read_exact(&mut header[received..])?;
        let mut body = vec![0; length(header)?];
        self.0.read_exact(&mut body)?;
        Ok((postcard::from_bytes(&body).map_err(malformed)?, descriptors))
    }
}

/// Receives bytes up to the length of the buffer, with the attached descriptors.
fn receive_with(
    stream: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, ChannelError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received == 0 { Err(ChannelError::Closed) } else { Ok(received) }
}

fn length(header: [u8; HEADER]) -> Result<usize, ChannelError> {
    let length = u32::from_le_bytes(header) as usize;
    if length <= LONGEST { Ok(length) } else { Err(ChannelError::Malformed(format!("{length} bytes"))) }
}

fn malformed(error: postcard::Error) -> ChannelError {
    ChannelError::Malformed(error.to_string())
}

/// The receiving half of a channel in a tokio runtime.
pub struct Incoming(tokio::net::UnixStream);

impl Incoming {
    /// Makes the socket non-blocking, which affects duplicated handles too. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot register the socket.
    pub fn new(channel: Channel) -> io::Result<Self> {
        channel.0.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(channel.0).map(Self)
    }

    /// Receives a message. Not cancel safe.
    ///
    /// # Errors
    /// [`ChannelError`]. Any error leaves the channel unusable.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        use tokio::io::{AsyncReadExt as _, Interest};
        let (mut header, mut descriptors) = ([0; HEADER], Vec::new());
        let read = || {
            receive_with(self.0.as_fd(), &mut header, &mut descriptors).map_err(|error| match error {
                ChannelError::Timeout => io::ErrorKind::WouldBlock.into(),
                ChannelError::Closed => io::ErrorKind::UnexpectedEof.into(),
                error => io::Error::other(error),
            })
        };
        let received = self.0.async_io(Interest::READABLE, read).await?;
        self.0.read_exact(&mut header[received..]).await?;
        let mut body = vec![0; length(header)?];
        self.0.read_exact(&mut body).await?;
        Ok((postcard::from_bytes(&body).map_err(malformed)?, descriptors))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::*;

    #[test]
    fn messages_arrive_in_order_with_their_descriptors() {
        let (mut one, mut other) = Channel::pair().expect("sockets");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        one.send(&vec![7_u64; 1000], &[]).expect("sent");
        one.send(&"with a pipe", &[reader.as_fd(), writer.as_fd()]).expect("sent");
        one.send(&(), &[]).expect("sent");
        drop((reader, writer));
        assert_eq!(other.receive::<Vec<u64>>().expect("a message").0, vec![7; 1000]);
        let (text, descriptors) = other.receive::<String>().expect("a message");
        assert_eq!((text.as_str(), descriptors.len()), ("with a pipe", 2));
        let mut ends = descriptors.into_iter().map(File::from);
        let (mut reader, mut writer) = (ends.next().expect("an end"), ends.next().expect("an end"));
        writer.write_all(b"x").expect("written");
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).expect("text"), "x");
        assert!(other.receive::<()>().expect("a message").1.is_empty());
    }

    #[test]
    fn a_closed_end_and_a_timeout_are_different_errors() {
        let (mut one, other) = Channel::pair().expect("sockets");
        one.set_deadline(Duration::from_millis(10)).expect("a deadline");
        assert!(matches!(one.receive::<()>(), Err(ChannelError::Timeout)));
        drop(other);
        assert!(matches!(one.receive::<()>(), Err(ChannelError::Closed)));
        assert!(matches!(one.send(&(), &[]), Err(ChannelError::Closed)));
    }

    #[test]
    fn lengths_and_bodies_from_a_compromised_part_are_checked() {
        let receive = |bytes: &[u8]| {
            let (mut one, mut other) = Channel::pair().expect("sockets");
            one.0.write_all(bytes).expect("written");
            drop(one);
            other.receive::<Vec<String>>().expect_err("refused")
        };
        assert!(matches!(receive(&u32::MAX.to_le_bytes()), ChannelError::Malformed(_)));
        assert!(matches!(receive(&[1, 0, 0, 0, 9]), ChannelError::Malformed(_)));
        // A vector with more elements than the body.
        assert!(matches!(receive(&[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), ChannelError::Malformed(_)));
        assert!(matches!(receive(&[8, 0, 0, 0, 1]), ChannelError::Closed));
    }

    #[tokio::test]
    async fn the_asynchronous_end_receives_messages_and_descriptors() {
        let (mut one, other) = Channel::pair().expect("sockets");
        let mut incoming = Incoming::new(other).expect("watched");
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let sender = tokio::task::spawn_blocking(move || {
            one.send(&vec![3_u8; 1 << 20], &[reader.as_fd()])?;
            one.send(&1_u8, &[])
        });
        let (bytes, descriptors) = incoming.receive::<Vec<u8>>().await.expect("a message");
        assert_eq!((bytes.len(), descriptors.len()), (1 << 20, 1));
        assert_eq!(incoming.receive::<u8>().await.expect("a message").0, 1);
        sender.await.expect("it does not panic").expect("sent");
        assert!(matches!(incoming.receive::<u8>().await, Err(ChannelError::Closed)));
    }
}
