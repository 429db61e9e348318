//! Bulk traffic over TCP and UDP, bounded in time.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{surroundings::pin, wire::Wire};

/// One write of the stream.
const CHUNK: usize = 64 * 1024;
/// One datagram, which fits a frame.
const DATAGRAM: usize = 1200;
/// How long a thread waits before it checks for the stop flag.
const LOOK: Duration = Duration::from_millis(100);

/// Traffic that lasts until it is stopped or dropped, or until its limit is reached.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The receiving ends, open until all threads have ended.
    receivers: (Option<TcpStream>, Option<UdpSocket>),
}

impl Load {
    /// Starts a stream from left to right, and datagrams with a reply to each.
    pub fn start(wire: &Wire, limit: Duration) -> Self {
        let mut load = Self::stream(wire, limit);
        load.exchange_datagrams(wire, limit, None);
        load
    }

    /// Starts a stream from left to right.
    pub fn stream(wire: &Wire, limit: Duration) -> Self {
        let (client, server) = streams(wire);
        let receivers = (Some(server.try_clone().unwrap()), None);
        let mut load = Self { stop: Arc::default(), threads: Vec::new(), receivers };
        load.spawn(limit, move |goes_on| send(client, goes_on));
        load.spawn(limit, move |goes_on| receive(server, goes_on));
        load
    }

    /// Starts datagrams with a reply to each, between two CPUs. Each CPU is idle until the other one has sent.
    pub fn exchange(wire: &Wire, limit: Duration, cpus: [usize; 2]) -> Self {
        let mut load = Self { stop: Arc::default(), threads: Vec::new(), receivers: (None, None) };
        load.exchange_datagrams(wire, limit, Some(cpus));
        load
    }

    /// Starts datagrams with a reply to each. `cpus` are those of the asking and the answering thread.
    fn exchange_datagrams(&mut self, wire: &Wire, limit: Duration, cpus: Option<[usize; 2]>) {
        let (left, right) = datagrams(wire);
        self.receivers.1 = Some(right.try_clone().unwrap());
        self.spawn(limit, move |goes_on| {
            cpus.iter().for_each(|[asking, _]| pin(None, *asking));
            ask(&left, goes_on);
        });
        self.spawn(limit, move |goes_on| {
            cpus.iter().for_each(|[_, answering]| pin(None, *answering));
            answer(&right, goes_on);
        });
    }

    fn spawn(&mut self, limit: Duration, work: impl FnOnce(&dyn Fn() -> bool) + Send + 'static) {
        let (stop, end) = (Arc::clone(&self.stop), Instant::now() + limit);
        let goes_on = move || !stop.load(Ordering::Relaxed) && Instant::now() < end;
        self.threads.push(thread::spawn(move || work(&goes_on)));
    }

    /// Stops the traffic, and waits for its threads.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn streams(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let client = wire.left.run(|| TcpStream::connect(address).unwrap());
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(LOOK)).unwrap();
        stream.set_write_timeout(Some(LOOK)).unwrap();
    }
    (client, server)
}

fn datagrams(wire: &Wire) -> (UdpSocket, UdpSocket) {
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    left.connect(right.local_addr().unwrap()).unwrap();
    right.connect(left.local_addr().unwrap()).unwrap();
    for socket in [&left, &right] {
        socket.set_read_timeout(Some(LOOK)).unwrap();
    }
    (left, right)
}

/// Returns true if an operation timed out.
fn late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn send(mut stream: TcpStream, goes_on: &dyn Fn() -> bool) {
    let chunk = vec![0x55; CHUNK];
    while goes_on() {
        if let Err(error) = stream.write(&chunk) {
            assert!(late(&error), "{error}");
        }
    }
}

fn receive(mut stream: TcpStream, goes_on: &dyn Fn() -> bool) {
    let mut buffer = vec![0; CHUNK];
    while goes_on() {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => assert!(late(&error), "{error}"),
        }
    }
}

fn ask(socket: &UdpSocket, goes_on: &dyn Fn() -> bool) {
    let mut buffer = [0x55; DATAGRAM];
    while goes_on() {
        socket.send(&buffer).unwrap();
        if let Err(error) = socket.recv(&mut buffer) {
            assert!(late(&error), "{error}");
        }
    }
}

fn answer(socket: &UdpSocket, goes_on: &dyn Fn() -> bool) {
    let mut buffer = [0; DATAGRAM];
    while goes_on() {
        match socket.recv(&mut buffer) {
            Ok(length) => drop(socket.send(&buffer[..length]).unwrap()),
            Err(error) => assert!(late(&error), "{error}"),
        }
    }
}
