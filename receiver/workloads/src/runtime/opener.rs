//! Opens the sockets of container runtimes.

use std::io;

use tokio::net::UnixStream;

use crate::reader::{Connect, Endpoint, FindSockets, Foreign, FoundSockets, SocketPaths};

/// Opens the sockets of container runtimes through the reader, which passes the connections.
#[derive(Clone)]
pub struct Opener(Access);

#[derive(Clone)]
enum Access {
    Reader(Foreign),
    /// This process opens sockets in a thread of the runtime, which therefore does not advance a paused clock meanwhile.
    #[cfg(test)]
    Here,
}

impl Opener {
    /// Opens sockets through this reader.
    #[must_use]
    pub const fn through(reader: Foreign) -> Self {
        Self(Access::Reader(reader))
    }

    /// Opens sockets in this process.
    #[cfg(test)]
    pub(super) const fn here() -> Self {
        Self(Access::Here)
    }

    /// Searches for sockets. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub(super) async fn look(self, places: SocketPaths) -> io::Result<FoundSockets> {
        match self.0 {
            Access::Reader(reader) => reader.call(FindSockets { paths: places }).await.map(|(found, _)| found),
            #[cfg(test)]
            Access::Here => tokio::task::spawn_blocking(move || places.look()).await.map_err(io::Error::other),
        }
    }

    /// Connects to a socket. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error, a [`Refusal`](crate::reader::Refusal), or the failure of the reader.
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> io::Result<UnixStream> {
        let endpoint = endpoint.clone();
        let stream: std::os::unix::net::UnixStream = match &self.0 {
            Access::Reader(reader) => {
                let (connected, mut descriptors) = reader.call(Connect { endpoint }).await?;
                connected?;
                let without = || io::Error::other("the reader sent no connection");
                descriptors.pop().ok_or_else(without)?.into()
            }
            #[cfg(test)]
            Access::Here => {
                tokio::task::spawn_blocking(move || endpoint.connect()).await.map_err(io::Error::other)??
            }
        };
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }
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
