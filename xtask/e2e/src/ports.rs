//! Ports on loopback for programs that tests start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context as _;

/// Returns a free address on loopback. Another process may bind it at any time.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?)
}

/// Starts a program again if another process has bound a chosen port first.
pub fn retry<T>(start: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut refusals = 0;
    loop {
        match start() {
            Err(error) if refusals < 2 && format!("{error:#}").contains("address already in use") => refusals += 1,
            result => return result,
        }
    }
}
