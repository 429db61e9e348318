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
/// Traffic ends by itself, whatever happens to who wanted it.
const LONGEST: Duration = Duration::from_secs(120);
/// No exchange on loopback takes this long.
const ANSWER: Duration = Duration::from_secs(5);
/// What one exchange carries.
const MESSAGE: [u8; 512] = [0x55; 512];

/// Traffic that goes on until the value is stopped or dropped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<u64>>>,
}

impl Traffic {
    /// Begins to exchange messages between sockets of this process.
    pub fn start() -> anyhow::Result<Self> {
        let mut pairs = vec![Pair::open(Ipv4Addr::LOCALHOST.into())?];
        // Hosts without IPv6 exist.
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

    /// Ends it and returns how many messages went over TCP, and as many over UDP.
    pub fn stop(mut self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("traffic is stopped once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the thread that made traffic panicked"))?
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Connected sockets on one address.
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

    /// One message over TCP and one over UDP.
    fn exchange(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; MESSAGE.len()];
        self.client.write_all(&MESSAGE)?;
        self.server.read_exact(&mut buffer)?;
        self.sender.send(&MESSAGE)?;
        self.receiver.recv(&mut buffer)?;
        Ok(())
    }
}
