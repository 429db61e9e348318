//! The sockets of endpoints.

use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::FileTypeExt as _,
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use rustix::{fs::Mode, process::umask};

use super::server::{self, Respond};
use crate::options::LocalAddress;

/// An endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program uses the address, or the kernel refuses.
    #[error("cannot listen for {purpose} on {address}: {source}; choose another address in `{key}`")]
    Address {
        /// The purpose of the endpoint.
        purpose: &'static str,
        /// The address.
        address: String,
        /// The key of the address.
        key: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file with the token cannot be read, or has no token.
    #[error("cannot read the token in {path}: {problem}")]
    Token {
        /// The path of the file.
        path: String,
        /// The problem and its remedy.
        problem: String,
    },
}

/// The purpose of an endpoint, and the key of its address.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    pub(super) text: &'static str,
    pub(super) key: &'static str,
}

impl Purpose {
    fn failed(self, address: &impl fmt::Display, source: io::Error) -> ListenError {
        ListenError::Address { purpose: self.text, address: address.to_string(), key: self.key, source }
    }
}

/// An open endpoint that does not answer yet.
pub(super) enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Opens an endpoint. The process still needs its privileges.
    ///
    /// # Errors
    /// If another program uses the address, or the kernel refuses.
    pub(super) fn open(address: &LocalAddress, purpose: Purpose) -> Result<Self, ListenError> {
        match address {
            LocalAddress::Tcp(address) => Self::open_port(*address, purpose),
            LocalAddress::Unix(path) => bind(path).map(Self::Unix).map_err(|source| purpose.failed(address, source)),
        }
    }

    /// Opens a port. The process still needs its privileges.
    ///
    /// # Errors
    /// If another program uses the port, or the kernel refuses.
    pub(super) fn open_port(address: SocketAddr, purpose: Purpose) -> Result<Self, ListenError> {
        let opened = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(Self::Tcp(listener))
        });
        opened.map_err(|source| purpose.failed(&address, source))
    }

    /// Returns the address of a port, which the kernel chooses for port 0.
    pub(super) fn port(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Answers requests in a task of the current runtime.
    ///
    /// # Errors
    /// If tokio cannot watch the socket.
    pub(super) fn serve(self, pages: impl Respond) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(server::run(async move || Ok(listener.accept().await?.0), pages));
            }
            Self::Unix(listener) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                tokio::spawn(server::run(async move || Ok(listener.accept().await?.0), pages));
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
