//! Access to the files and sockets that the settings name.

use std::{
    fmt,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::net::UnixStream;

use crate::files::{open_or_connect, read_limited};

/// A descriptor that will be open.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<OwnedFd>> + Send>>;

/// Opens files, and connects to sockets. A sidecar without privileges may do neither, and uses another process.
#[derive(Clone)]
pub struct Access(Arc<dyn Fn(PathBuf) -> Opening + Send + Sync>);

impl Access {
    /// Returns access through a function, which opens a regular file for reading or connects to a socket.
    pub fn through(open: impl Fn(PathBuf) -> Opening + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Connects `each` times to each socket, and returns access to these connections. They remain usable after this process has
    /// dropped its privileges.
    #[must_use]
    pub fn connected<'a>(paths: impl Iterator<Item = &'a PathBuf>, each: usize) -> Self {
        let mut opened = Vec::new();
        for path in paths {
            opened.extend((0..each).map(|_| (path.clone(), open_or_connect(path))));
        }
        let opened = Mutex::new(opened);
        Self::through(move |path| {
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            let found = opened.iter().position(|(known, _)| *known == path).map(|index| opened.swap_remove(index).1);
            Box::pin(std::future::ready(found.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))))
        })
    }

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    /// If the file cannot be opened or read, or exceeds the limit.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only connections with TLS read certificates again"))]
    pub(super) async fn read(&self, path: PathBuf, limit: u64) -> io::Result<Vec<u8>> {
        read_limited(File::from((self.0)(path).await?), limit)
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// If nothing listens there, or the kernel refuses.
    pub(super) async fn connect(&self, path: PathBuf) -> io::Result<UnixStream> {
        let socket = StdUnixStream::from((self.0)(path).await?);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    }
}

impl Default for Access {
    /// Returns the access of this process.
    fn default() -> Self {
        Self::through(|path| Box::pin(std::future::ready(open_or_connect(&path))))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}
