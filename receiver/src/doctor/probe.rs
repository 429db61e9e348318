//! Sends traffic over loopback that should trigger every hook.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use aya::sys::{Stats, SyscallError, enable_stats};

use crate::kernel::{Kernel, client::ServiceError};

/// Errors of the probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel cannot count runs.
    #[error("cannot enable the kernel's BPF statistics: {0}; this requires Linux 5.8 and CAP_SYS_ADMIN")]
    Statistics(#[from] SyscallError),
    /// The counts cannot be read.
    #[error(transparent)]
    Runs(#[from] ServiceError),
    /// Loopback is unavailable.
    #[error("cannot send over loopback: {0}; bring it up with `ip link set lo up`")]
    Loopback(#[source] io::Error),
}

/// A few exchanges are enough to see that a hook fires.
const EXCHANGES: usize = 10;
/// Sizes of datagrams in one piece and in fragments.
const SIZES: [usize; 2] = [100, 30_000];
/// The time limit of an exchange on loopback.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counts the runs of each attached program while TCP and UDP messages pass over loopback, on each available IP
/// version.
///
/// # Errors
/// If runs cannot be counted, or loopback is down.
pub fn runs(kernel: &Kernel) -> Result<Vec<(String, u64)>, ProbeError> {
    let statistics = enable_stats(Stats::RunTime)?;
    exchange(Ipv4Addr::LOCALHOST.into()).map_err(ProbeError::Loopback)?;
    // Without IPv6 some programs never run, and the report shows this.
    if let Err(error) = exchange(Ipv6Addr::LOCALHOST.into()) {
        tracing::warn!("no IPv6 on loopback: {error}");
    }
    let runs = kernel.runs()?.into_iter().map(|(program, runs)| (program, runs.count)).collect();
    drop(statistics);
    Ok(runs)
}

fn exchange(address: IpAddr) -> io::Result<()> {
    stamped(address)?;
    for size in SIZES {
        datagrams(address, size)?;
        stream(address, size)?;
    }
    Ok(())
}

/// Waits until packets carry receive timestamps. The kernel enables timestamps in a work queue.
fn stamped(address: IpAddr) -> io::Result<()> {
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        datagrams(address, SIZES[0])?;
    }
    Ok(())
}

fn datagrams(address: IpAddr, size: usize) -> io::Result<()> {
    let (receiver, sender) = (UdpSocket::bind((address, 0))?, UdpSocket::bind((address, 0))?);
    receiver.set_read_timeout(Some(PATIENCE))?;
    let (payload, mut buffer, to) = (vec![0; size], vec![0; size], receiver.local_addr()?);
    for _ in 0..EXCHANGES {
        sender.send_to(&payload, to)?;
        receiver.recv_from(&mut buffer)?;
    }
    Ok(())
}

fn stream(address: IpAddr, size: usize) -> io::Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    let (payload, mut buffer) = (vec![0; size], vec![0; size]);
    for _ in 0..EXCHANGES {
        client.write_all(&payload)?;
        server.read_exact(&mut buffer)?;
    }
    Ok(())
}
