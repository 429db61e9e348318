//! The socket of the health endpoint.

use std::{
    fs, io,
    net::TcpListener,
    os::unix::{
        fs::FileTypeExt as _,
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use rustix::{fs::Mode, process::umask};

use super::Health;
use crate::options::LocalAddress;

/// The endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for health checks on {address}: {source}; choose another address in `health.listen`")]
pub struct ListenError {
    address: LocalAddress,
    #[source]
    source: io::Error,
}

/// An open endpoint that does not answer yet.
pub enum Listener {
    /// A port of the loopback interface.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Opens the endpoint. The process still needs its privileges.
    ///
    /// # Errors
    /// If another program uses the address, or the kernel refuses.
    pub fn open(address: &LocalAddress) -> Result<Self, ListenError> {
        let opened = match address {
            LocalAddress::Tcp(address) => TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }),
            LocalAddress::Unix(path) => bind(path).map(Self::Unix),
        };
        opened.map_err(|source| ListenError { address: address.clone(), source })
    }

    /// Answers requests in a task of the current runtime.
    ///
    /// # Errors
    /// If tokio cannot watch the socket.
    pub fn serve(self, health: Health) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(super::server::run(async move || Ok(listener.accept().await?.0), health));
            }
            Self::Unix(listener) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                tokio::spawn(super::server::run(async move || Ok(listener.accept().await?.0), health));
            }
        }
        Ok(())
    }
}

/// Binds a socket that every user may connect to. Replaces the socket of a process that has ended, which could not remove it
/// without privileges.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let is_abandoned = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(is_abandoned) {
        fs::remove_file(path)?;
    }
    // A change of the permissions after `bind` would follow a link that another user put there meanwhile.
    let before = umask(Mode::XUSR | Mode::XGRP | Mode::XOTH);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
