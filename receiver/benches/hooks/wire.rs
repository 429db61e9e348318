//! Two network namespaces of this process with a veth pair between them. Only sockets refer to them, so they end
//! with the process.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::MetadataExt as _,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::net::{AddressFamily, SocketType, socket};
use serde::Serialize;

/// The content of a message.
const MESSAGE: [u8; 100] = [0x55; 100];
/// The time limit of an exchange over veth, including slow guests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The length of a pause.
const PAUSE: Duration = Duration::from_micros(50);

/// The addresses of one IP version, from the ranges for documentation.
struct Version {
    client: &'static str,
    server: &'static str,
    prefix: u8,
}

const IPV4: Version = Version { client: "192.0.2.1", server: "192.0.2.2", prefix: 24 };
const IPV6: Version = Version { client: "2001:db8::1", server: "2001:db8::2", prefix: 64 };

/// A kind of traffic.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// UDP over IPv4.
    UdpIpv4,
    /// UDP over IPv6.
    UdpIpv6,
    /// TCP over IPv4.
    TcpIpv4,
    /// TCP over IPv6.
    TcpIpv6,
    /// No packets: sockets that are created and closed in this process's namespace.
    Sockets,
    /// UDP over IPv4 between two threads, which switch at each message on a machine with one CPU.
    Threads,
    /// No packets: a thread that sleeps, so that its CPU switches to the idle task and back.
    Pauses,
}

impl Traffic {
    /// All kinds of traffic.
    pub const ALL: [Self; 7] =
        [Self::UdpIpv4, Self::UdpIpv6, Self::TcpIpv4, Self::TcpIpv6, Self::Sockets, Self::Threads, Self::Pauses];
}

/// Connected sockets at both ends, for each IP version.
pub struct Wire {
    ipv4: Pair,
    ipv6: Pair,
    namespaces: [u64; 2],
}

/// The sockets of a client and of a server, each in a separate namespace.
struct Pair {
    udp: [UdpSocket; 2],
    tcp: [TcpStream; 2],
}

/// The listening sockets of a server.
struct Listening {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Wire {
    /// Creates the namespaces, the veth pair and the sockets.
    pub fn open() -> anyhow::Result<Self> {
        let (tell_namespace, namespace) = mpsc::channel();
        let (tell_linked, linked) = mpsc::channel();
        let server = thread::spawn(move || -> anyhow::Result<(u64, [Listening; 2])> {
            enter_namespace()?;
            tell_namespace.send(rustix::thread::gettid())?;
            linked.recv().context("the other end could not be made")?;
            up("right", [(IPV4.server, IPV4.prefix), (IPV6.server, IPV6.prefix)])?;
            Ok((namespace_inode()?, [listen(IPV4.server)?, listen(IPV6.server)?]))
        });
        let client = thread::spawn(move || -> anyhow::Result<Self> {
            enter_namespace()?;
            let other = namespace.recv().context("the other namespace could not be made")?;
            let other = other.as_raw_nonzero().to_string();
            ip(&["link", "add", "left", "type", "veth", "peer", "name", "right", "netns", &other])?;
            up("left", [(IPV4.client, IPV4.prefix), (IPV6.client, IPV6.prefix)])?;
            tell_linked.send(())?;
            let (server, [ipv4, ipv6]) = joined(server)?;
            let namespaces = [namespace_inode()?, server];
            Ok(Self { ipv4: connect(IPV4.client, ipv4)?, ipv6: connect(IPV6.client, ipv6)?, namespaces })
        });
        joined(client)
    }

    /// Returns the inodes of both namespaces.
    pub const fn namespaces(&self) -> [u64; 2] {
        self.namespaces
    }

    /// Sends requests from the client to the server, and waits for each reply. A single thread does this, to avoid
    /// other load, except for [`Traffic::Threads`]. Instead of each exchange, [`Traffic::Sockets`] creates two sockets,
    /// and [`Traffic::Pauses`] sleeps.
    pub fn exchange(&mut self, traffic: Traffic, requests: u32) -> anyhow::Result<()> {
        let each = |exchange: &mut dyn FnMut() -> io::Result<()>| (0..requests).try_for_each(|_| exchange());
        match traffic {
            Traffic::UdpIpv4 => each(&mut || self.ipv4.over_udp()),
            Traffic::UdpIpv6 => each(&mut || self.ipv6.over_udp()),
            Traffic::TcpIpv4 => each(&mut || self.ipv4.over_tcp()),
            Traffic::TcpIpv6 => each(&mut || self.ipv6.over_tcp()),
            Traffic::Sockets => each(&mut sockets),
            Traffic::Threads => self.ipv4.between_threads(requests),
            Traffic::Pauses => each(&mut || {
                thread::sleep(PAUSE);
                Ok(())
            }),
        }
        .context("traffic over veth")
    }
}

impl Pair {
    fn over_udp(&self) -> io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        let [client, server] = &self.udp;
        client.send(&MESSAGE)?;
        server.recv(&mut buffer)?;
        server.send(&MESSAGE)?;
        client.recv(&mut buffer)?;
        Ok(())
    }

    fn between_threads(&self, requests: u32) -> io::Result<()> {
        let [client, server] = &self.udp;
        let repeat = |exchange: &dyn Fn(&mut [u8]) -> io::Result<usize>| {
            (0..requests).try_for_each(|_| exchange(&mut [0; MESSAGE.len()]).map(drop))
        };
        thread::scope(|scope| {
            let replies =
                scope.spawn(move || repeat(&|buffer| server.recv(buffer).and_then(|_| server.send(&MESSAGE))));
            repeat(&|buffer| client.send(&MESSAGE).and_then(|_| client.recv(buffer)))?;
            replies.join().unwrap_or_else(|_| Err(io::Error::other("the replying thread panicked")))
        })
    }

    fn over_tcp(&mut self) -> io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        let [client, server] = &mut self.tcp;
        client.write_all(&MESSAGE)?;
        server.read_exact(&mut buffer)?;
        server.write_all(&MESSAGE)?;
        client.read_exact(&mut buffer)
    }
}

/// Creates a socket of each IP version.
fn sockets() -> io::Result<()> {
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        socket(family, SocketType::DGRAM, None)?;
    }
    Ok(())
}

/// Moves the calling thread, including its later sockets and processes, into a new network namespace.
fn enter_namespace() -> anyhow::Result<()> {
    // SAFETY: the call affects only the network namespace of the calling thread.
    let refused = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    ensure!(refused == 0, "cannot make a network namespace: {}; run as root", io::Error::last_os_error());
    Ok(())
}

/// Returns the inode of the calling thread's network namespace.
fn namespace_inode() -> anyhow::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net").context("cannot look at this network namespace")?.ino())
}

fn up(interface: &str, addresses: [(&str, u8); 2]) -> anyhow::Result<()> {
    for (address, prefix) in addresses {
        let address = format!("{address}/{prefix}");
        // Duplicate address detection would keep an IPv6 address unusable for a second.
        let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        ip(&[&["address", "add", &address, "dev", interface], nodad].concat())?;
    }
    ip(&["link", "set", interface, "up"])
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot start `ip`: install iproute2")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn listen(address: &str) -> anyhow::Result<Listening> {
    let address: IpAddr = address.parse()?;
    Ok(Listening { udp: UdpSocket::bind((address, 0))?, tcp: TcpListener::bind((address, 0))? })
}

fn connect(address: &str, server: Listening) -> anyhow::Result<Pair> {
    let address: IpAddr = address.parse()?;
    let udp = UdpSocket::bind(SocketAddr::new(address, 0))?;
    udp.connect(server.udp.local_addr()?)?;
    server.udp.connect(udp.local_addr()?)?;
    let tcp = TcpStream::connect_timeout(&server.tcp.local_addr()?, PATIENCE).context("no TCP connection over veth")?;
    let (accepted, _) = server.tcp.accept()?;
    for socket in [&udp, &server.udp] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    for socket in [&tcp, &accepted] {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
    }
    Ok(Pair { udp: [udp, server.udp], tcp: [tcp, accepted] })
}

fn joined<T>(thread: thread::JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("the thread that made a namespace panicked"))?
}
