//! Messages between the parts of the sidecar: frames on a pair of Unix stream sockets.
//!
//! A frame is the body's length in bytes as a little-endian `u32`, then the body in the postcard format. Descriptors travel
//! with the length.

mod call;

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
    time::Timespec,
};
use serde::{Serialize, de::DeserializeOwned};

pub use self::call::{Call, Reply};

/// The maximum length of a body. A scan of the largest cgroup tree with long paths has a few megabytes.
const LONGEST: usize = 32 << 20;
/// The maximum length of a request to a privileged part. A decoded request takes up to 16 times as much memory.
pub const LONGEST_REQUEST: usize = 1 << 20;
/// The maximum number of descriptors in one frame: `SCM_MAX_FD` of `include/net/scm.h`. The kernel closes descriptors that do not fit
/// before the call returns, which blocks the receiver.
const DESCRIPTORS: usize = 253;
/// `SO_PASSRIGHTS` of `include/uapi/asm-generic/socket.h`, Linux 6.16. Older kernels refuse it.
const SO_PASSRIGHTS: libc::c_int = 83;
/// Size of the length field, in bytes.
const HEADER: usize = size_of::<u32>();
/// A closed end is an error instead of a signal, and a full socket is one instead of a wait.
const SENT: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// The reply to a call, or the reason why the other part could not execute it; with the reply's descriptors.
pub type Received<T> = (Result<T, String>, Vec<OwnedFd>);

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end is closed.
    #[error("the process ended")]
    Closed,
    /// The other end did not reply before the deadline.
    #[error("no reply before the deadline")]
    Timeout,
    /// A request came with descriptors.
    #[error("a request with descriptors")]
    Descriptors,
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
pub struct Channel {
    stream: UnixStream,
    /// The time limit of a message; `None` waits for ever.
    limit: Option<Duration>,
    /// True if the other end has fewer privileges and sends requests.
    serves: bool,
}

impl From<UnixStream> for Channel {
    fn from(stream: UnixStream) -> Self {
        Self { stream, limit: None, serves: false }
    }
}

impl From<OwnedFd> for Channel {
    fn from(descriptor: OwnedFd) -> Self {
        UnixStream::from(descriptor).into()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.stream.into()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Channel {
    /// Creates a pair of connected channels.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixStream::pair().map(|(one, other)| (one.into(), other.into()))
    }

    /// Duplicates the descriptor of this end.
    ///
    /// # Errors
    /// If the limit of open descriptors is reached.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, limit: self.limit, serves: self.serves })
    }

    /// Makes this the end of a part that executes requests of a part with fewer privileges. Messages that it receives have at most
    /// [`LONGEST_REQUEST`] bytes and no descriptors: closing a descriptor of another process can block, for example a socket
    /// with `SO_LINGER`.
    pub fn serve(&mut self) {
        self.serves = true;
        let no: libc::c_int = 0;
        let length = size_of_val(&no) as libc::socklen_t;
        // SAFETY: the kernel reads an integer of this length. Without the option, `receive` refuses the descriptors.
        unsafe {
            libc::setsockopt(self.stream.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const no).cast(), length)
        };
    }

    /// Limits the time to send a message, and the time to receive one.
    pub const fn set_limit(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`ChannelError`]. A partially sent message leaves the channel unusable.
    pub fn send(&mut self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        self.send_body(&postcard::to_stdvec(message).map_err(malformed)?, descriptors)
    }

    /// Sends the reply to a call.
    ///
    /// # Errors
    /// See [`Channel::send`].
    pub fn reply(&mut self, reply: &Reply) -> Result<(), ChannelError> {
        let descriptors: Vec<_> = reply.descriptors.iter().map(OwnedFd::as_fd).collect();
        self.send_body(&reply.body, &descriptors)
    }

    /// Sends a call and receives the reply within the call's time limit. `request` makes the request of the other end's type.
    ///
    /// # Errors
    /// [`ChannelError`]. Any error leaves the channel unusable, because a late reply would answer the next call.
    pub fn call<C: Call, R: Serialize + From<C>>(&mut self, call: C) -> Result<Received<C::Reply>, ChannelError> {
        self.set_limit(C::LIMIT);
        self.send(&R::from(call), &[])?;
        self.receive()
    }

    fn send_body(&mut self, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let until = self.deadline();
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LONGEST);
        let length = length.ok_or_else(|| ChannelError::Malformed(format!("{} bytes", body.len())))?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ChannelError::Malformed(format!("{} descriptors", descriptors.len())));
        }
        let header = [IoSlice::new(&length), IoSlice::new(body)];
        let mut sent = self.retried(PollFlags::OUT, until, |stream| sendmsg(stream, &header, &mut ancillary, SENT))?;
        // A header that was cut in the middle is as good as none, and the other end would wait for the rest.
        while sent < HEADER {
            let rest = [IoSlice::new(&length[sent..]), IoSlice::new(body)];
            let mut none = SendAncillaryBuffer::default();
            sent += self.retried(PollFlags::OUT, until, |stream| sendmsg(stream, &rest, &mut none, SENT))?;
        }
        let mut rest = &body[sent - HEADER..];
        while !rest.is_empty() {
            let mut none = SendAncillaryBuffer::default();
            let part = [IoSlice::new(rest)];
            let sent = self.retried(PollFlags::OUT, until, |stream| sendmsg(stream, &part, &mut none, SENT))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.limit.map(|limit| Instant::now() + limit)
    }

    /// Repeats a call that does not block until it succeeds or the time is over.
    fn retried<T>(
        &self,
        ready: PollFlags,
        until: Option<Instant>,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<T, ChannelError> {
        loop {
            match call(self.as_fd()) {
                Err(rustix::io::Errno::AGAIN) => self.wait(ready, until)?,
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Waits until the socket is ready, or the time is over.
    fn wait(&self, ready: PollFlags, until: Option<Instant>) -> Result<(), ChannelError> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() });
        match poll(&mut [PollFd::new(self, ready)], left.as_ref()) {
            Ok(0) => Err(ChannelError::Timeout),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// [`ChannelError`]. Any error leaves the channel unusable.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let until = self.deadline();
        let (mut header, mut descriptors) = ([0; HEADER], Vec::new());
        self.fill(&mut header, until, &mut descriptors)?;
        self.accept(&mut descriptors)?;
        let mut body = vec![0; length(header, if self.serves { LONGEST_REQUEST } else { LONGEST })?];
        self.fill(&mut body, until, &mut descriptors)?;
        self.accept(&mut descriptors)?;
        Ok((postcard::from_bytes(&body).map_err(malformed)?, descriptors))
    }

    /// Refuses the descriptors of a request, and leaves them open: the kernel closes them without waiting when this process ends.
    fn accept(&self, descriptors: &mut Vec<OwnedFd>) -> Result<(), ChannelError> {
        if !self.serves || descriptors.is_empty() {
            return Ok(());
        }
        descriptors.drain(..).for_each(std::mem::forget);
        Err(ChannelError::Descriptors)
    }

    /// Receives exactly as many bytes as the buffer has.
    fn fill(
        &self,
        mut bytes: &mut [u8],
        until: Option<Instant>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), ChannelError> {
        while !bytes.is_empty() {
            let received = self.retried(PollFlags::IN, until, |stream| receive_with(stream, bytes, descriptors))?;
            if received == 0 {
                return Err(ChannelError::Closed);
            }
            bytes = &mut bytes[received..];
        }
        Ok(())
    }
}

/// Receives bytes up to the length of the buffer, with the attached descriptors. Does not block.
fn receive_with(stream: BorrowedFd<'_>, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?.bytes;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(received)
}

fn length(header: [u8; HEADER], longest: usize) -> Result<usize, ChannelError> {
    let length = u32::from_le_bytes(header) as usize;
    if length <= longest { Ok(length) } else { Err(ChannelError::Malformed(format!("{length} bytes"))) }
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
        channel.stream.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(channel.stream).map(Self)
    }

    /// Receives a message. Not cancel safe.
    ///
    /// # Errors
    /// [`ChannelError`]. Any error leaves the channel unusable.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        use tokio::io::{AsyncReadExt as _, Interest};
        let (mut header, mut descriptors) = ([0; HEADER], Vec::new());
        let read = || receive_with(self.0.as_fd(), &mut header, &mut descriptors).map_err(io::Error::from);
        let received = self.0.async_io(Interest::READABLE, read).await?;
        if received == 0 {
            return Err(ChannelError::Closed);
        }
        self.0.read_exact(&mut header[received..]).await?;
        let mut body = vec![0; length(header, LONGEST)?];
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
        one.set_limit(Duration::from_millis(10));
        assert!(matches!(one.receive::<()>(), Err(ChannelError::Timeout)));
        drop(other);
        assert!(matches!(one.receive::<()>(), Err(ChannelError::Closed)));
        assert!(matches!(one.send(&(), &[]), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_message_in_small_pieces_does_not_extend_its_time() {
        let (mut one, mut other) = Channel::pair().expect("sockets");
        one.set_limit(Duration::from_millis(200));
        let slow = std::thread::spawn(move || {
            // Each byte comes well before the end of the time, and all of them well after it.
            [100, 0, 0, 0].into_iter().chain([0; 100]).find_map(|byte| {
                std::thread::sleep(Duration::from_millis(20));
                other.stream.write_all(&[byte]).err()
            })
        });
        assert!(matches!(one.receive::<Vec<u8>>(), Err(ChannelError::Timeout)));
        drop(one);
        slow.join().expect("it does not panic").expect("the channel was closed before the end of the message");
    }

    #[test]
    fn a_full_socket_does_not_extend_the_time_of_a_message() {
        let (mut one, _other) = Channel::pair().expect("sockets");
        one.set_limit(Duration::from_millis(10));
        assert!(matches!(one.send(&vec![0_u8; 16 << 20], &[]), Err(ChannelError::Timeout)));
    }

    #[test]
    fn lengths_and_bodies_from_a_compromised_part_are_checked() {
        let receive = |bytes: &[u8]| {
            let (mut one, mut other) = Channel::pair().expect("sockets");
            one.stream.write_all(bytes).expect("written");
            drop(one);
            other.receive::<Vec<String>>().expect_err("refused")
        };
        assert!(matches!(receive(&u32::MAX.to_le_bytes()), ChannelError::Malformed(_)));
        assert!(matches!(receive(&[1, 0, 0, 0, 9]), ChannelError::Malformed(_)));
        // A vector with more elements than the body.
        assert!(matches!(receive(&[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), ChannelError::Malformed(_)));
        assert!(matches!(receive(&[8, 0, 0, 0, 1]), ChannelError::Closed));
    }

    #[test]
    fn requests_with_descriptors_or_of_excessive_length_are_refused() {
        let serving = || {
            let (one, mut other) = Channel::pair().expect("sockets");
            other.serve();
            (one, other)
        };
        let (mut one, mut other) = serving();
        one.send(&vec![1_u8; 1000], &[]).expect("sent");
        assert_eq!(other.receive::<Vec<u8>>().expect("a message").0.len(), 1000);
        let descriptor = one.try_clone().expect("a descriptor");
        // From Linux 6.16 on, the kernel refuses to send them.
        let refused = match one.send(&1_u8, &[descriptor.as_fd()]) {
            Ok(()) => matches!(other.receive::<u8>(), Err(ChannelError::Descriptors)),
            Err(ChannelError::Io(error)) => error.kind() == io::ErrorKind::PermissionDenied,
            Err(_) => false,
        };
        assert!(refused);
        let (mut one, mut other) = serving();
        one.stream.write_all(&(LONGEST_REQUEST as u32 + 1).to_le_bytes()).expect("written");
        assert!(matches!(other.receive::<Vec<u8>>(), Err(ChannelError::Malformed(_))));
    }

    #[test]
    fn refused_descriptors_are_not_closed() {
        let (mut one, mut other) = Channel::pair().expect("sockets");
        // As on kernels without `SO_PASSRIGHTS`.
        other.serves = true;
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        one.send(&1_u8, &[writer.as_fd()]).expect("sent");
        drop(writer);
        assert!(matches!(other.receive::<u8>(), Err(ChannelError::Descriptors)));
        // A closed writer would make the pipe readable.
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&nothing)), Ok(0));
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
