//! Collectors and runtimes that answer with random bytes. The seeds are fixed.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::support::{
    collector::Collector,
    containers::{id, names, of_root},
    http2::{broken_connection, broken_response, serve},
    line::Line,
    random::Random,
    runtime::{Runtime, container, request, with_private_run},
    sidecar::Sidecar,
    status::Status,
    surroundings::{alone, often, patience, wait_for},
    tree::Tree,
};

const SEED: u64 = 0x5eed;
/// Broken connections of the collector. The back-off after each grows to half a minute.
const CONNECTIONS: u64 = 5;
/// Broken responses of the collector.
const RESPONSES: u64 = 40;
/// Sockets of broken runtimes, half of Docker and half of containerd.
const SOCKETS: usize = 24;
/// Broken answers of runtimes.
const ANSWERS: u64 = 100;
/// The memory that an attack may add to the worker, in kilobytes.
const GROWTH: u64 = 8 << 10;

/// The worker's memory during an attack.
struct Memory {
    worker: u32,
    before: u64,
    most: u64,
}

impl Memory {
    fn read(sidecar: &Sidecar) -> Self {
        let before = Self::now(sidecar.pid());
        Self { worker: sidecar.pid(), before, most: before }
    }

    fn now(worker: u32) -> u64 {
        Status::of_process(worker).unwrap().number("RssAnon")
    }

    /// Waits for a snapshot, and records the memory.
    fn snapshot(&mut self, sidecar: &Sidecar) -> Line {
        let line = sidecar.snapshot();
        self.most = self.most.max(Self::now(self.worker));
        line
    }

    fn check(&self) {
        eprintln!("{} kB before, {} kB at most", self.before, self.most);
        assert!(self.most <= self.before + GROWTH, "{} kB before, {} kB at most", self.before, self.most);
    }
}

/// Ends a sidecar after an attack.
fn ends(mut sidecar: Sidecar) {
    let (status, took) = sidecar.signal(Signal::TERM);
    assert!(status.success() && took <= patience(Duration::from_secs(3)), "{status} after {took:?}");
    let log = sidecar.logs("");
    assert!(!log.contains("panicked"), "{log}");
}

/// Sends bytes, and waits until the client disconnects or some time has passed.
fn send(mut client: TcpStream, bytes: &[u8]) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_millis(200)))?;
    client.write_all(bytes)?;
    client.shutdown(Shutdown::Write)?;
    io::copy(&mut client, &mut io::sink()).map(drop)
}

/// Passes a connection to another server.
fn forward(client: TcpStream, server: &str) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut requests, mut replies) = (client.try_clone()?, client);
    let (mut outgoing, mut incoming) = (server.try_clone()?, server);
    thread::spawn(move || io::copy(&mut requests, &mut outgoing));
    io::copy(&mut incoming, &mut replies).map(drop)
}

/// Exports to a broken collector until `least` attacks have happened, then to a sound one. `attack` gets the number
/// of the connection.
fn recovers(
    name: &str,
    least: u64,
    attack: impl Fn(u64, TcpStream, &AtomicBool, &AtomicU64) -> io::Result<()> + Copy + Send + 'static,
) {
    let Some(_alone) = alone(name) else { return };
    let collector = Collector::start(Duration::ZERO, usize::MAX);
    let sound = collector.endpoint().strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::new((AtomicBool::new(true), AtomicU64::new(0)));
    let shared = Arc::clone(&state);
    thread::spawn(move || {
        for (number, client) in (0..).zip(listener.incoming().map_while(Result::ok)) {
            let (state, sound) = (Arc::clone(&shared), sound.clone());
            thread::spawn(move || {
                let (is_hostile, count) = &*state;
                if is_hostile.load(Ordering::Relaxed) {
                    attack(number, client, is_hostile, count)
                } else {
                    forward(client, &sound)
                }
            });
        }
    });
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_TIMEOUT", "500")];
    let sidecar = Sidecar::start_with(often(), &["--output", "otlp"], &variables);
    let (mut memory, (is_hostile, count)) = (Memory::read(&sidecar), &*state);
    wait_for("attacks", patience(Duration::from_secs(60)), || {
        memory.snapshot(&sidecar);
        (count.load(Ordering::Relaxed) >= least).then_some(())
    });
    is_hostile.store(false, Ordering::Relaxed);
    let start = Instant::now();
    wait_for("a delivery", patience(Duration::from_secs(70)), || {
        memory.snapshot(&sidecar);
        collector.deliveries().iter().any(|delivery| delivery.accepted && delivery.points > 0).then_some(())
    });
    eprintln!("{name}: delivered after {:?}", start.elapsed());
    memory.check();
    ends(sidecar);
}

#[test]
fn random_frames_of_a_collector_are_survived() {
    recovers("random frames of a collector", CONNECTIONS, |number, client, _, count| {
        count.fetch_add(1, Ordering::Relaxed);
        send(client, &broken_connection(&mut Random::new(SEED + number)))
    });
}

#[test]
fn random_responses_of_a_collector_are_survived() {
    recovers("random responses of a collector", RESPONSES, |number, mut client, is_hostile, count| {
        let mut random = Random::new(SEED + number);
        serve(&mut client, |stream| {
            is_hostile.load(Ordering::Relaxed).then(|| {
                count.fetch_add(1, Ordering::Relaxed);
                broken_response(&mut random, stream)
            })
        })
    });
}

/// Returns bytes that no server of Docker's API sends.
fn broken_http(random: &mut Random) -> Vec<u8> {
    let reply = |headers: &str, body: &[u8]| [b"HTTP/1.1 200 OK\r\n", headers.as_bytes(), b"\r\n", body].concat();
    let sized = |body: &[u8]| reply(&format!("Content-Length: {}\r\n", body.len()), body);
    match random.below(9) {
        0 => random.bytes(4096),
        1 => reply("Content-Length: 18446744073709551615\r\n", &random.bytes(4096)),
        2 => reply("Content-Length: -1\r\nContent-Length: 5\r\n", &random.bytes(64)),
        3 => reply("Transfer-Encoding: chunked\r\n\r\n", b"ffffffffffffffff\r\n{"),
        4 => sized(&random.bytes(4096)),
        5 => sized(&b"[".repeat(100_000)),
        6 => sized(br#"{"Id": 7, "Name": [], "Config": {"Labels": [[]], "Image": {}}}"#),
        7 => reply(&"X-Header: value\r\n".repeat(1000), b"{}"),
        _ => b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000),
    }
}

/// Listens at a path, and answers each connection.
fn listen(path: &str, answer: impl Fn(u64, UnixStream) -> io::Result<()> + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for (number, client) in (0..).zip(listener.incoming().map_while(Result::ok)) {
            // The client may disconnect.
            let _ = answer(number, client);
        }
    });
}

/// Starts broken runtimes, and returns the paths of their sockets.
fn broken_runtimes(answers: &Arc<AtomicU64>) -> Vec<String> {
    let sockets = (0..SOCKETS).map(|socket| {
        let (count, seed) = (Arc::clone(answers), SEED + 1000 * socket as u64);
        let kind = ["docker", "containerd"][socket % 2];
        let path = format!("/run/{kind}-{socket}.sock");
        listen(&path, move |number, mut client| {
            let mut random = Random::new(seed + number);
            let counted = || count.fetch_add(1, Ordering::Relaxed);
            client.set_read_timeout(Some(Duration::from_secs(1)))?;
            if kind == "docker" {
                request(&mut client);
                counted();
                client.write_all(&broken_http(&mut random))
            } else if number % 2 == 0 {
                counted();
                client.write_all(&broken_connection(&mut random))
            } else {
                serve(&mut client, |stream| {
                    counted();
                    Some(broken_response(&mut random, stream))
                })
            }
        });
        path
    });
    sockets.collect()
}

#[test]
fn random_answers_of_runtimes_delay_no_other_runtime() {
    const TEST: &str = "random answers of runtimes";
    let Some(_alone) = alone(TEST) else { return };
    let Some(tree) = Tree::create(TEST) else { return };
    with_private_run(|| {
        let answers = Arc::<AtomicU64>::default();
        let mut sockets = broken_runtimes(&answers);
        let _sound = Runtime::listen("/run/docker-sound.sock", 0, |path| Some(container(path, "rightful")));
        sockets.push("/run/docker-sound.sock".to_owned());
        let sidecar = Sidecar::configured(&format!("workloads: {{sockets: [{}]}}", sockets.join(", ")));
        let mut memory = Memory::read(&sidecar);
        let of_containerd = |number| format!("system.slice/cri-containerd-{}.scope", id(number));
        let mut number = 0;
        let line = wait_for("broken answers", patience(Duration::from_secs(60)), || {
            let cgroups = [of_root(&id(2 * number)), of_containerd(2 * number + 1)];
            cgroups.iter().for_each(|cgroup| drop(tree.make(cgroup)));
            number += 1;
            let line = memory.snapshot(&sidecar);
            (answers.load(Ordering::Relaxed) >= ANSWERS && names(&line, &id(0)) == ["rightful"]).then_some(line)
        });
        eprintln!("{} broken answers, {number} containers of each runtime", answers.load(Ordering::Relaxed));
        assert_eq!(names(&line, &id(1)), [""; 0]);
        memory.check();
        ends(sidecar);
    });
}
