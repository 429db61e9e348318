//! One fixed request to a container runtime, and the bytes of the reply.
//!
//! The reader sends the requests, because a connection to a runtime's socket is as good as root: the worker never gets one. The reader
//! does not parse replies. Of HTTP/2 it reads the headers of frames, to find the end of the reply (RFC 9113, section 4.1).

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::Endpoint;

/// The largest reply of a runtime, in bytes. A description has a few kilobytes.
const REPLY: usize = 1 << 20;
/// The largest reply from a user's socket. A decoded reply takes many times its size, and each user may send the largest at
/// any time.
const USER_REPLY: usize = 128 << 10;

/// A question to a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Docker's description of a container (`GET /containers/ID/json`).
    InspectContainer(String),
    /// The namespaces of containerd (`Namespaces.List`).
    ListNamespaces,
    /// containerd's description of a container (`Containers.Get`).
    GetContainer {
        /// The namespace of the container.
        namespace: String,
        /// The id of the container.
        id: String,
    },
    /// The container with this id (CRI, `ListContainers`).
    ListContainers(String),
    /// The pod sandbox with this id (CRI, `ListPodSandbox`).
    ListPodSandbox(String),
    /// The status of a container (CRI, `ContainerStatus`).
    ContainerStatus(String),
}

/// The end of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// The runtime closes the connection after the reply.
    Http1,
    /// A frame ends the stream.
    Http2,
}

impl Endpoint {
    /// Returns the limit of a reply, in bytes.
    #[must_use]
    pub fn reply_limit(&self) -> usize {
        if self.user().is_some() { USER_REPLY } else { REPLY }
    }

    /// Sends a request, and returns the bytes of the reply up to the limit. They may be anything.
    ///
    /// # Errors
    /// The kernel's error, a [`Refusal`](crate::Refusal), `TimedOut` after this time, or `InvalidInput` if an id or a namespace has
    /// characters that no runtime uses.
    pub fn exchange(&self, query: &Query, limit: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + limit;
        let (request, protocol) = query.request(self.reply_limit()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut stream = self.connect()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(limit))?;
        // A server that closes at once may have sent a reply before.
        let sent = stream.write_all(&request);
        let reply = read(&mut stream, protocol, self.reply_limit(), until)?;
        if reply.is_empty() { sent.map(|()| reply) } else { Ok(reply) }
    }
}

/// Reads a reply up to its end, or up to the limit.
fn read(stream: &mut UnixStream, protocol: Protocol, limit: usize, until: Instant) -> io::Result<Vec<u8>> {
    let (mut reply, mut buffer, mut end) = (Vec::new(), [0; 16 << 10], StreamEnd::default());
    while reply.len() < limit && !(protocol == Protocol::Http2 && end.is_reached(&reply)) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let room = buffer.len().min(limit - reply.len());
        match stream.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(count) => reply.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            // The peer reset the connection; what it sent before is the reply.
            Err(_) if !reply.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(reply)
}

impl Query {
    /// Returns the bytes of the request with the largest reply; `None` if a text has characters that no runtime uses.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.request(REPLY).map(|(request, _)| request)
    }

    /// Returns the bytes of the request; `None` if a text has characters that no runtime uses.
    fn request(&self, window: usize) -> Option<(Vec<u8>, Protocol)> {
        let grpc = |path, namespace: Option<&str>, message: &[u8]| {
            Some((grpc(path, namespace, message, window), Protocol::Http2))
        };
        match self {
            Self::InspectContainer(id) => {
                let id = checked(id)?;
                // Without a version every engine accepts it; old engines refuse a newer version than theirs.
                let head =
                    format!("GET /containers/{id}/json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                Some((head.into_bytes(), Protocol::Http1))
            }
            Self::ListNamespaces => grpc("/containerd.services.namespaces.v1.Namespaces/List", None, &[]),
            Self::GetContainer { namespace, id } => {
                let path = "/containerd.services.containers.v1.Containers/Get";
                grpc(path, Some(checked(namespace)?), &field(checked(id)?.as_bytes()))
            }
            Self::ListContainers(id) => {
                grpc("/runtime.v1.RuntimeService/ListContainers", None, &field(&field(checked(id)?.as_bytes())))
            }
            Self::ListPodSandbox(id) => {
                grpc("/runtime.v1.RuntimeService/ListPodSandbox", None, &field(&field(checked(id)?.as_bytes())))
            }
            Self::ContainerStatus(id) => {
                grpc("/runtime.v1.RuntimeService/ContainerStatus", None, &field(checked(id)?.as_bytes()))
            }
        }
    }
}

/// The longest id or namespace, in characters. The length of a message then fits one byte.
const LONGEST: usize = 110;

/// Returns a text that consists of the characters of ids and namespaces, and begins with a letter or a digit.
fn checked(text: &str) -> Option<&str> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    (begins && text.len() <= LONGEST && text.bytes().all(is_known)).then_some(text)
}

/// Encodes the first field of a message: a text or a message.
fn field(bytes: &[u8]) -> Vec<u8> {
    prefixed(&[0x0a], bytes)
}

/// Returns a prefix, a length below 128, and the bytes.
fn prefixed(prefix: &[u8], bytes: &[u8]) -> Vec<u8> {
    [prefix, &[bytes.len() as u8], bytes].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The stream of the request.
const STREAM: u32 = 1;
/// Size of a frame's header, in bytes.
const FRAME: usize = 9;
/// The longest frame that a client without the setting accepts, in bytes.
const LONGEST_FRAME: usize = 16 << 10;

/// Encodes a unary call of gRPC on a new connection.
fn grpc(path: &str, namespace: Option<&str>, message: &[u8], window: usize) -> Vec<u8> {
    let window = (window as u32).to_be_bytes();
    // The initial window of a stream, and no pushed streams.
    let settings = [&[0, 4], &window[..], &[0, 2, 0, 0, 0, 0]].concat();
    // Fields of HPACK's static table (RFC 7541, appendix A), and literals without indexing.
    let mut headers = vec![0x83, 0x86];
    headers.extend(prefixed(&[0x04], path.as_bytes()));
    headers.extend(prefixed(&[0x01], b"localhost"));
    headers.extend(prefixed(&[0x0f, 0x10], b"application/grpc"));
    headers.extend(prefixed(&prefixed(&[0], b"te"), b"trailers"));
    if let Some(namespace) = namespace {
        headers.extend(prefixed(&prefixed(&[0], b"containerd-namespace"), namespace.as_bytes()));
    }
    // A message that is not compressed.
    let body = [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(WINDOW_UPDATE, 0, 0, &window),
        frame(HEADERS, END_HEADERS, STREAM, &headers),
        frame(DATA, END_STREAM, STREAM, &body),
    ]
    .concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Finds the end of a reply among the frames of a connection.
#[derive(Default)]
struct StreamEnd {
    /// The start of the first frame that has not been examined.
    at: usize,
}

impl StreamEnd {
    /// Returns true if the bytes contain the end of the stream, or no frames. Later calls get the same bytes and more.
    fn is_reached(&mut self, bytes: &[u8]) -> bool {
        while let Some(header) = bytes.get(self.at..self.at + FRAME) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
            let end = self.at + FRAME + length;
            if length > LONGEST_FRAME {
                return true;
            }
            if bytes.len() < end {
                return false;
            }
            self.at = end;
            let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 || kind == RST_STREAM;
            if ends && stream == STREAM || kind == GOAWAY {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_cannot_change_the_request() {
        for id in ["", "..", "../../info", "a/b", "a?b", "-a", "ä", "a b", "a\r\nb", &"a".repeat(LONGEST + 1)] {
            for query in [
                Query::InspectContainer(id.to_owned()),
                Query::ListContainers(id.to_owned()),
                Query::GetContainer { namespace: id.to_owned(), id: "a".to_owned() },
                Query::GetContainer { namespace: "a".to_owned(), id: id.to_owned() },
            ] {
                assert_eq!(query.request(REPLY), None, "{query:?}");
            }
        }
        let (head, _) = Query::InspectContainer("0a".to_owned()).request(REPLY).expect("a request");
        assert!(head.starts_with(b"GET /containers/0a/json HTTP/1.1\r\n"));
    }

    #[test]
    fn a_reply_ends_with_its_stream() {
        let reply = [
            frame(SETTINGS, 0, 0, &[0; 6]),
            frame(HEADERS, END_HEADERS, STREAM, b"head"),
            frame(DATA, END_STREAM, 3, b"another stream"),
            frame(DATA, 0, STREAM, b"data"),
            frame(HEADERS, END_HEADERS | END_STREAM, STREAM, b"trailers"),
        ]
        .concat();
        // The bytes arrive one by one.
        let mut end = StreamEnd::default();
        let reached = (0..=reply.len()).position(|length| end.is_reached(&reply[..length]));
        assert_eq!(reached, Some(reply.len()));
        assert!(StreamEnd::default().is_reached(&frame(GOAWAY, 0, 0, &[])));
        assert!(StreamEnd::default().is_reached(&frame(RST_STREAM, 0, STREAM, &[0; 4])));
        assert!(StreamEnd::default().is_reached(b"HTTP/1.1 400 Bad Request"), "no frame is that long");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_examined_once(bytes: Vec<u8>) {
            let mut end = StreamEnd::default();
            let reached = (0..=bytes.len()).any(|length| end.is_reached(&bytes[..length]));
            proptest::prop_assert_eq!(reached, StreamEnd::default().is_reached(&bytes));
        }
    }
}
