//! Opens the sockets of container runtimes, in this process or through the reader.

use std::{io, time::Duration};

use tokio::net::UnixStream;

use super::source::TIMEOUT;
use crate::reader::{Endpoint, Foreign, ForeignReply, ForeignRequest, FoundSockets, SocketPaths};

/// The longest time for a search. A search that hangs holds one thread of the reader, and no other search starts meanwhile.
const SEARCH: Duration = Duration::from_secs(600);

/// Opens the sockets of container runtimes.
#[derive(Clone)]
pub enum Opener {
    /// This process opens them.
    Here,
    /// The reader opens them and passes the connections.
    Reader(Foreign),
}

impl Opener {
    /// Searches for sockets. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub(super) async fn look(self, places: SocketPaths) -> io::Result<FoundSockets> {
        match self {
            Self::Here => tokio::task::spawn_blocking(move || places.look()).await.map_err(io::Error::other),
            Self::Reader(reader) => match reader.call(&ForeignRequest::FoundSockets(places), SEARCH).await? {
                (ForeignReply::FoundSockets(look), _) => Ok(look),
                _ => Err(unexpected()),
            },
        }
    }

    /// Connects to a socket. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error, a [`Refusal`](crate::reader::Refusal), or the failure of the reader.
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> io::Result<UnixStream> {
        let endpoint = endpoint.clone();
        let stream = match self {
            // A file system that hangs blocks a thread of the pool, and not the event loop.
            Self::Here => tokio::task::spawn_blocking(move || endpoint.connect()).await.map_err(io::Error::other)??,
            Self::Reader(reader) => match reader.call(&ForeignRequest::Connect(endpoint), TIMEOUT).await? {
                (ForeignReply::Connected(Ok(())), mut descriptors) => {
                    std::os::unix::net::UnixStream::from(descriptors.pop().ok_or_else(unexpected)?)
                }
                (ForeignReply::Connected(Err(error)), _) => return Err(error.into()),
                _ => return Err(unexpected()),
            },
        };
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }
}

fn unexpected() -> io::Error {
    io::Error::other("the reader sent an unexpected reply")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reader::{ConnectError, Refusal},
        runtime::Reason,
    };

    #[test]
    fn an_error_keeps_its_reason_on_the_way() {
        for (error, reason) in [
            (Refusal::Peer(0, 1000).into(), Reason::Untrusted),
            (io::Error::from_raw_os_error(libc::EACCES), Reason::Denied),
            (io::Error::from_raw_os_error(libc::ENOENT), Reason::Gone),
            (io::Error::other("else"), Reason::Closed),
        ] {
            let received = io::Error::from(ConnectError::from(error));
            assert_eq!(Reason::from(&received), reason, "{received}");
        }
    }
}
