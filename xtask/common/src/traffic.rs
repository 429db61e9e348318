//! Bounded traffic on loopback: TCP and UDP, over both IP versions.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;

/// One exchange of each kind per version and period: two hundred a second of each.
const PERIOD: Duration = Duration::from_millis(5);
/// Upper limit of the traffic's duration, in case the owner neither stops nor drops it.
const LONGEST: Duration = Duration::from_secs(120);
/// Timeout of one exchange.
const ANSWER: Duration = Duration::from_secs(5);
/// Payload of one message.
const MESSAGE: [u8; 512] = [0x55; 512];

/// A thread that makes traffic until it is stopped or dropped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<u64>>>,
}

impl Traffic {
    /// Starts exchanging messages between sockets of this process.
    pub fn start() -> anyhow::Result<Self> {
        let mut pairs = vec![Pair::open(Ipv4Addr::LOCALHOST.into())?];
        // Some hosts have no IPv6.
        pairs.extend(Pair::open(Ipv6Addr::LOCALHOST.into()).ok());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (start, mut exchanges) = (Instant::now(), 0);
            while !stopped.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
                for pair in &mut pairs {
                    pair.exchange().context("traffic on loopback")?;
                    exchanges += 1;
                }
                thread::sleep(PERIOD);
            }
            Ok(exchanges)
        });
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the traffic and returns the number of TCP messages. The number of UDP messages is equal.
    pub fn stop(mut self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("traffic was stopped twice")?;
        thread.join().map_err(|_| anyhow::anyhow!("the thread that made traffic panicked"))?
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Connected sockets on one address: a TCP pair and a UDP pair.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Pair {
    fn open(address: IpAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        let receiver = UdpSocket::bind((address, 0))?;
        let sender = UdpSocket::bind((address, 0))?;
        sender.connect(receiver.local_addr()?)?;
        client.set_nodelay(true)?;
        server.set_read_timeout(Some(ANSWER))?;
        receiver.set_read_timeout(Some(ANSWER))?;
        Ok(Self { client, server, sender, receiver })
    }

    /// Sends and receives one message over TCP and one over UDP.
    fn exchange(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        self.client.write_all(&MESSAGE)?;
        self.server.read_exact(&mut buffer)?;
        self.sender.send(&MESSAGE)?;
        self.receiver.recv(&mut buffer)?;
        Ok(())
    }
}
