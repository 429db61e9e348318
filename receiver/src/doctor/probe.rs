//! Traffic over loopback that every hook should see.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use aya::sys::{Stats, SyscallError, enable_stats};

use crate::kernel::{Kernel, client::ServiceError};

/// Why the probe says nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Runs cannot be counted.
    #[error("cannot switch the kernel's statistics on: {0}; it takes Linux 5.8 and CAP_SYS_ADMIN")]
    Statistics(#[from] SyscallError),
    /// The counts cannot be read.
    #[error(transparent)]
    Runs(#[from] ServiceError),
    /// Loopback is not there.
    #[error("cannot send over loopback: {0}; bring it up with `ip link set lo up`")]
    Loopback(#[source] io::Error),
}

/// A few of each are enough: this asks whether a hook fires, not how often.
const EXCHANGES: usize = 10;
/// Datagrams of both kinds: in one piece, and in several.
const SIZES: [usize; 2] = [100, 30_000];
/// Nothing on loopback takes this long.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often each attached program ran while TCP and UDP went over loopback, on both IP versions where both are there.
///
/// # Errors
/// Where runs cannot be counted, or loopback is not up.
pub fn runs(kernel: &Kernel) -> Result<Vec<(String, u64)>, ProbeError> {
    let statistics = enable_stats(Stats::RunTime)?;
    exchange(Ipv4Addr::LOCALHOST.into()).map_err(ProbeError::Loopback)?;
    // A host without IPv6 has programs that never run, and the report shows it.
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

/// Waits until packets carry receive timestamps: the kernel switches them on from a work queue.
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
        receiver.recv(&mut buffer)?;
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
