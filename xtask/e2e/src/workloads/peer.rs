//! The program in the containers. It exchanges a known number of messages and reports the number of packets that its namespace
//! received.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Port of the server, for TCP and UDP.
const PORT: u16 = 7000;
/// Payload of a message. It fits into one frame.
const MESSAGE: [u8; 200] = [0x55; 200];
/// Timeout of an exchange.
const ANSWER: Duration = Duration::from_secs(10);
/// Polling interval of an idle container.
const POLL: Duration = Duration::from_millis(10);
/// Upper limit of a container's lifetime.
const LONGEST: Duration = Duration::from_secs(300);

/// The role of a container.
#[derive(clap::Args)]
pub struct Arguments {
    /// Path of the report, written at the end. FILE.idle marks the end of the work.
    #[arg(long)]
    report: PathBuf,
    /// Start once this file exists.
    #[arg(long)]
    after: Option<PathBuf>,
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Echo messages until the end.
    Server,
    /// Exchange messages with the server, then wait for the end.
    Client { server: IpAddr, datagrams: u64, requests: u64 },
    /// Exchange a datagram and a request with the server in every period, until the end.
    Steady { server: IpAddr, milliseconds: u64 },
    /// Send datagrams to its own socket, then wait for the end.
    Alone { datagrams: u64 },
    /// Send datagrams to its own socket, and end after some milliseconds.
    Brief { datagrams: u64, milliseconds: u64 },
    /// Use CPU time until the end.
    Busy,
}

/// Packets that a container's network namespace received since the container's start, from the kernel's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// UDP datagrams delivered to a reader (`InDatagrams`).
    pub udp: u64,
    /// TCP segments (`InSegs`).
    pub tcp: u64,
}

impl Report {
    /// Returns the path of the file that marks the end of a container's work.
    pub fn idle(report: &Path) -> PathBuf {
        report.with_extension("idle")
    }

    /// Returns the report of a container, or `None` before its end.
    pub fn read(report: &Path) -> anyhow::Result<Option<Self>> {
        match fs::read_to_string(report) {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", report.display())),
        }
    }

    /// Returns the counters of the namespace. The namespace may be older than the container.
    fn count() -> anyhow::Result<Self> {
        let counted = procfs::net::snmp().context("cannot read the counters of the network namespace")?;
        Ok(Self { udp: counted.udp_in_datagrams, tcp: counted.tcp_in_segs })
    }

    fn write(report: &Path, before: Self) -> anyhow::Result<()> {
        let now = Self::count()?;
        let difference = Self { udp: now.udp - before.udp, tcp: now.tcp - before.tcp };
        let unfinished = report.with_extension("part");
        fs::write(&unfinished, serde_json::to_string(&difference)?)?;
        fs::rename(unfinished, report).context("cannot write the report")
    }
}

/// Runs a role until SIGTERM.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), Report::count()?);
    let ended = Arc::new(AtomicBool::new(false));
    // The init process of a container ignores SIGTERM unless it has a handler.
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&ended))?;
    let over = |limit| ended.load(Ordering::Relaxed) || start.elapsed() > limit;
    while arguments.after.as_ref().is_some_and(|file| !file.exists()) && !over(LONGEST) {
        thread::sleep(POLL);
    }
    match arguments.role {
        Role::Server => serve()?,
        Role::Client { server, datagrams, requests } => {
            let server = SocketAddr::from((server, PORT));
            send_datagrams(server, datagrams)?;
            request(server, requests)?;
        }
        Role::Steady { server, milliseconds } => {
            thread::spawn(move || exchange(SocketAddr::from((server, PORT)), Duration::from_millis(milliseconds)));
        }
        Role::Alone { datagrams } | Role::Brief { datagrams, .. } => read_own(datagrams)?,
        Role::Busy => {}
    }
    fs::write(Report::idle(&arguments.report), "").context("cannot mark the end of the work")?;
    let limit = match arguments.role {
        Role::Brief { milliseconds, .. } => Duration::from_millis(milliseconds),
        _ => LONGEST,
    };
    while !over(limit) {
        match arguments.role {
            Role::Busy => std::hint::spin_loop(),
            _ => thread::sleep(POLL),
        }
    }
    Report::write(&arguments.report, before)
}

fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        loop {
            let (length, sender) = datagrams.recv_from(&mut buffer)?;
            datagrams.send_to(&buffer[..length], sender)?;
        }
    });
    thread::spawn(move || -> std::io::Result<()> {
        loop {
            let (connection, _) = listener.accept()?;
            thread::spawn(|| answer(connection));
        }
    });
    Ok(())
}

/// Echoes every message of a connection until the client closes it.
fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; MESSAGE.len()];
    loop {
        match connection.read_exact(&mut buffer) {
            Ok(()) => connection.write_all(&buffer)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn send_datagrams(server: SocketAddr, count: u64) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER))?;
    for _ in 0..count {
        socket.send(&MESSAGE)?;
        socket.recv(&mut [0; MESSAGE.len()]).context("the server did not answer a datagram")?;
    }
    Ok(())
}

fn request(server: SocketAddr, count: u64) -> anyhow::Result<()> {
    let mut connection = connect(server)?;
    for _ in 0..count {
        echo(&mut connection)?;
    }
    // The socket must stay open to receive the server's last segment.
    connection.shutdown(Shutdown::Write)?;
    connection.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn connect(server: SocketAddr) -> anyhow::Result<TcpStream> {
    let connection = TcpStream::connect(server).context("the server takes no connection")?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(ANSWER))?;
    Ok(connection)
}

/// Sends a message over a connection and receives the echo.
fn echo(connection: &mut TcpStream) -> anyhow::Result<()> {
    connection.write_all(&MESSAGE)?;
    connection.read_exact(&mut [0; MESSAGE.len()]).context("the server did not answer a request")
}

/// Exchanges a datagram and a request in every period. An error ends the container.
fn exchange(server: SocketAddr, period: Duration) {
    let run = || -> anyhow::Result<()> {
        let mut connection = connect(server)?;
        loop {
            send_datagrams(server, 1)?;
            echo(&mut connection)?;
            thread::sleep(period);
        }
    };
    let Err(error) = run() else { return };
    eprintln!("{error:#}");
    std::process::exit(1);
}

fn read_own(count: u64) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(ANSWER))?;
    for _ in 0..count {
        socket.send(&MESSAGE)?;
        socket.recv(&mut [0; MESSAGE.len()]).context("a datagram on loopback was lost")?;
    }
    Ok(())
}
