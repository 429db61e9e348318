//! Queries to the sockets of container runtimes, through the reader.

use std::{io, path::PathBuf};

use crate::reader::{Endpoint, Exchange, FindSockets, Foreign, FoundSockets, Query};
#[cfg(test)]
use crate::reader::{SocketPaths, message::EXCHANGE};

/// The sockets of container runtimes. The reader sends queries and passes the bytes of the replies.
#[derive(Clone)]
pub struct Runtimes(Access);

#[derive(Clone)]
enum Access {
    Reader(Foreign),
    /// This process sends queries in a thread of the runtime, which therefore does not advance a paused clock meanwhile.
    #[cfg(test)]
    Here(SocketPaths),
}

impl Runtimes {
    /// Sends queries through this reader.
    #[must_use]
    pub const fn through(reader: Foreign) -> Self {
        Self(Access::Reader(reader))
    }

    /// Sends queries from this process.
    #[cfg(test)]
    pub(super) const fn local(paths: SocketPaths) -> Self {
        Self(Access::Here(paths))
    }

    /// Searches for sockets. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub(super) async fn find(self) -> io::Result<FoundSockets> {
        match self.0 {
            Access::Reader(reader) => reader.call(FindSockets {}).await.map(|(found, _)| found),
            #[cfg(test)]
            Access::Here(paths) => tokio::task::spawn_blocking(move || paths.look()).await.map_err(io::Error::other),
        }
    }

    /// Sends a query, and returns the bytes of the reply. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error, a [`Refusal`](crate::reader::Refusal), or the failure of the reader.
    pub(super) async fn exchange(&self, endpoint: &Endpoint, query: Query) -> io::Result<Vec<u8>> {
        let path: PathBuf = endpoint.path.clone();
        match &self.0 {
            Access::Reader(reader) => Ok(reader.call(Exchange { path, query }).await?.0?),
            #[cfg(test)]
            Access::Here(_) => {
                let endpoint = endpoint.clone();
                let exchange = move || endpoint.exchange(&query, EXCHANGE);
                tokio::task::spawn_blocking(exchange).await.map_err(io::Error::other)?
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reader::{ExchangeError, Refusal},
        runtime::Reason,
    };

    #[test]
    fn an_error_keeps_its_reason_on_the_way() {
        for (error, reason) in [
            (Refusal::Peer(0, 1000).into(), Reason::Untrusted),
            (io::Error::from_raw_os_error(libc::EACCES), Reason::Denied),
            (io::Error::from_raw_os_error(libc::ENOENT), Reason::Gone),
            (io::ErrorKind::TimedOut.into(), Reason::Timeout),
            (io::Error::other("else"), Reason::Closed),
        ] {
            let received = io::Error::from(ExchangeError::from(error));
            assert_eq!(Reason::from(&received), reason, "{received}");
        }
    }
}
