//! One sidecar with every signal, and one count of each signal against the traffic of the test or the kernel's counter.
//! Comparisons of time are in the tests of each signal.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use undercurrent::signals::REGISTRY;

use super::{
    latency::served_by,
    support::{
        counters::{overflowed, retransmitted},
        line::Line,
        meters::Meters,
        sidecar::{Sidecar, file},
        span::Span,
        surroundings::{alone, often, patience, skipped, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
};

/// Datagrams and messages that a reader takes at once.
const MESSAGES: usize = 50;
const SIZE: usize = 300;
/// Datagrams to a port without a socket.
const LOST: usize = 7;
/// Attempts to connect to a listener that has room for two connections.
const ATTEMPTS: usize = 6;
/// The time for which a message waits for its reader. A packet has a span from 300 ms on.
const LATE: Duration = Duration::from_millis(700);
/// The energy of the tree's zone in microjoules, before and after.
const ENERGY: [u64; 2] = [1_000_000, 8_000_000];

const SETTINGS: &str = "{network_cpu: {exact: all}, processor: {events: software}, slow_packets: {threshold: 300ms}}";

/// The counts of the test and of the kernel between two snapshots.
struct Seen {
    before: Line,
    after: Line,
    port: u16,
    slow: usize,
    overflows: u64,
    retransmits: u64,
    softnet: [f64; 2],
}

impl Seen {
    /// Returns the growth of a metric's points with these attributes.
    fn grown(&self, metric: &str, attributes: &[(&str, &str)]) -> f64 {
        self.after.total(metric, attributes) - self.before.total(metric, attributes)
    }

    fn is_served(&self, hook: &str) -> bool {
        served_by(&self.after, hook).is_some()
    }

    /// Asserts that a metric has grown by at least a number of events: other programs have events too. A busy host's kernel
    /// skips some runs.
    fn assert_at_least(&self, metric: &str, attributes: &[(&str, &str)], count: usize) {
        let grown = self.grown(metric, attributes);
        assert!(grown >= count as f64 - skipped(count), "{metric} {attributes:?}: {grown} of {count}");
    }

    fn assert_grows(&self, metric: &str) {
        assert!(self.grown(metric, &[]) > 0.0, "{metric} does not grow");
    }
}

/// Sends datagrams and messages to readers that take them at once, and one message to a late reader. Returns the port of the
/// late reader.
fn exchange(wire: &Wire) -> u16 {
    let receiver = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let to = receiver.local_addr().unwrap();
    for _ in 0..MESSAGES {
        sender.send_to(&[0x55; SIZE], to).unwrap();
        assert_eq!(receiver.recv(&mut [0; SIZE]).unwrap(), SIZE);
    }
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let mut client = wire.left.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let mut server = listener.accept().unwrap().0;
    for _ in 0..MESSAGES {
        client.write_all(&[0x55; SIZE]).unwrap();
        server.read_exact(&mut [0; SIZE]).unwrap();
    }
    client.write_all(&[0x55; SIZE]).unwrap();
    thread::sleep(LATE);
    server.read_exact(&mut [0; SIZE]).unwrap();
    server.local_addr().unwrap().port()
}

fn lose(wire: &Wire) {
    let closed = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap()).local_addr().unwrap();
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    for _ in 0..LOST {
        sender.send_to(&[0x55; SIZE], closed).unwrap();
    }
}

/// Connects more often than the listener has room for. The kernel drops the other attempts, and TCP repeats them after a
/// second.
fn overflow(wire: &Wire) -> (TcpListener, Vec<OwnedFd>) {
    let listener = wire.right.run(|| {
        fs::write("/proc/sys/net/core/somaxconn", "1").unwrap();
        TcpListener::bind((wire.server(), 0)).unwrap()
    });
    let address: SocketAddr = listener.local_addr().unwrap();
    let attempt = |_| {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        assert_eq!(connect(&socket, &address), Err(rustix::io::Errno::INPROGRESS));
        socket
    };
    let attempts = wire.left.run(|| (0..ATTEMPTS).map(attempt).collect());
    (listener, attempts)
}

/// Returns the packets that softirqs have processed.
fn softnet() -> f64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let processed = |line: &str| u32::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();
    text.lines().map(processed).map(f64::from).sum()
}

/// Sends datagrams to a reader until the sidecar has samples of network work.
fn until_sampled(wire: &Wire, sidecar: &Sidecar) {
    let (receiver, sender) = (
        wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap()),
        wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap()),
    );
    let to = receiver.local_addr().unwrap();
    wait_for("samples of network work", patience(Duration::from_secs(10)), || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            sender.send_to(&[0x55; SIZE], to).unwrap();
            receiver.recv(&mut [0; SIZE]).unwrap();
        }
        let lines = sidecar.lines();
        let sampled = lines.last().map_or(0.0, |line| line.total("undercurrent.network.function.samples", &[]));
        (sampled > 0.0).then_some(())
    });
}

fn observe() -> Seen {
    let wire = Wire::veth(Version::Ipv4);
    let meters = Meters::with(&[("0", "package-0", ENERGY[0])]);
    let configuration = file(&format!("packets: {{sampling: all}}\nsignals: {SETTINGS}\n"));
    let configuration = ["--config", configuration.path().to_str().unwrap()];
    let sidecar = Sidecar::start_with(often(), &[&configuration[..], &["--sysfs-root", meters.root()]].concat(), &[]);
    sidecar.snapshot();
    let (counted, before) = (softnet(), sidecar.snapshot());
    let (overflows, retransmits) = (overflowed(&wire.right), retransmitted(&wire.left));
    meters.set("0", ENERGY[1]);
    let port = exchange(&wire);
    lose(&wire);
    let (_listener, attempts) = overflow(&wire);
    let repeated = || (retransmitted(&wire.left) > retransmits).then_some(());
    wait_for("TCP to repeat an attempt", patience(Duration::from_secs(10)), repeated);
    drop(attempts);
    let (overflows, retransmits) = (overflowed(&wire.right) - overflows, retransmitted(&wire.left) - retransmits);
    until_sampled(&wire, &sidecar);
    let after = sidecar.snapshot();
    let softnet = [counted, softnet()];
    let is_slow = |span: &&Span| {
        let is_of_port = span.attributes.get("network.local.port") == Some(&port.to_string());
        let lasted = Duration::from_nanos(span.end.saturating_sub(span.start));
        span.name == "network receive" && is_of_port && lasted >= LATE
    };
    let slow = sidecar.spans().iter().filter(is_slow).count();
    Seen { before, after, port, slow, overflows, retransmits, softnet }
}

/// Checks one signal.
fn check(signal: &str, seen: &Seen) {
    let [tcp, udp] = ["tcp", "udp"].map(|name| ("network.transport", name));
    let layer = |name: &'static str| ("undercurrent.network.layer", name);
    let receive = "undercurrent.network.receive.duration";
    match signal {
        "network_cpu" => {
            seen.assert_grows("undercurrent.network.cpu.time");
            let events = ["socket_send", "socket_receive"].map(|event| ("undercurrent.network.event", event));
            if seen.is_served("socket_call") {
                events.iter().for_each(|event| assert!(seen.grown("undercurrent.network.cpu.time", &[*event]) > 0.0));
            }
        }
        "network_functions" => {
            seen.assert_grows("undercurrent.network.estimated_cpu.time");
            seen.assert_grows("undercurrent.network.function.cpu.time");
        }
        "workload_cpu" => seen.assert_grows("undercurrent.cpu.time"),
        // Without quotas there are no points, or the time of other programs. `workloads::throttled` has quotas.
        "cpu_throttled" => assert!(seen.grown("undercurrent.cpu.throttled.time", &[]) >= 0.0),
        "threads" => assert!(seen.after.total("undercurrent.threads", &[]) > 0.0),
        "softnet" => {
            let (grown, [from, to]) = (seen.grown("undercurrent.softnet.processed", &[]), seen.softnet);
            assert!(grown > 0.0 && grown <= to - from, "{grown} of {}", to - from);
        }
        "latency" => {
            seen.assert_at_least(receive, &[layer("transport"), udp], MESSAGES);
            seen.assert_at_least(receive, &[layer("transport"), tcp], MESSAGES);
            seen.assert_at_least(receive, &[layer("socket_read"), tcp], MESSAGES);
        }
        "receive_wait" if seen.is_served("socket_enqueued") => {
            seen.assert_at_least("undercurrent.network.receive.wait.duration", &[tcp], MESSAGES);
        }
        // Without the hook of the enqueue there are no waits.
        "receive_wait" => assert_eq!(seen.grown("undercurrent.network.receive.wait.duration", &[]), 0.0),
        // No card of this machine timestamps packets.
        "receive_driver" => assert_eq!(seen.grown("undercurrent.network.receive.driver.duration", &[]), 0.0),
        "receive_segments" => seen.assert_at_least("undercurrent.network.receive.segments", &[udp], MESSAGES),
        "slow_packets" => assert_eq!(seen.slow, 1, "spans of port {}", seen.port),
        "softirq_wait" => {
            seen.assert_at_least("undercurrent.softirq.wait.duration", &[("undercurrent.softirq", "net_rx")], 1);
        }
        "tcp_rtt" => seen.assert_at_least("undercurrent.tcp.rtt", &[], MESSAGES),
        // The messages have no answer. `workloads::transactions` has turns.
        "tcp_transactions" if seen.is_served("tcp_segment") => seen.assert_grows("undercurrent.tcp.connections"),
        "tcp_transactions" => assert_eq!(seen.grown("undercurrent.tcp.connections", &[]), 0.0),
        "tcp_peers" if seen.is_served("tcp_segment") => seen.assert_grows("undercurrent.tcp.peer.io"),
        "tcp_peers" => assert_eq!(seen.grown("undercurrent.tcp.peer.io", &[]), 0.0),
        "transmit" => {
            let stage = ("undercurrent.network.stage", "stack");
            seen.assert_at_least("undercurrent.network.transmit.duration", &[stage, tcp], MESSAGES);
        }
        "tcp_retransmits" => {
            let retransmits = usize::try_from(seen.retransmits).unwrap();
            seen.assert_at_least("undercurrent.tcp.retransmits", &[], retransmits);
        }
        "tcp_listen_overflows" if seen.is_served("tcp_listen") => {
            let overflows = usize::try_from(seen.overflows).unwrap();
            seen.assert_at_least("undercurrent.tcp.listen.overflows", &[], overflows);
        }
        // Without the hook, only the listeners of the sidecar's own network namespace count.
        "tcp_listen_overflows" => assert!(seen.grown("undercurrent.tcp.listen.overflows", &[]) >= 0.0),
        "network_drops" => seen.assert_at_least("undercurrent.network.drops", &[], LOST),
        "processor" => seen.assert_grows("undercurrent.cpu.cycles"),
        "energy" => {
            let joules = (ENERGY[1] - ENERGY[0]) as f64 / 1e6;
            for metric in ["hw.energy", "undercurrent.energy"] {
                assert!((seen.grown(metric, &[]) - joules).abs() < 1e-6, "{metric}: {}", seen.grown(metric, &[]));
            }
        }
        other => panic!("no check of the signal `{other}`"),
    }
}

#[test]
fn every_signal_counts_the_traffic_of_the_test() {
    let Some(_alone) = alone("every signal") else { return };
    let seen = observe();
    for entry in REGISTRY {
        eprintln!("{}", entry.name);
        check(entry.name, &seen);
    }
    let states = [("undercurrent.hook.state", "healthy")];
    let healthy = seen.after.total("undercurrent.hook.status", &states);
    assert!(healthy > if virtual_machine().is_some() { 15.0 } else { 5.0 }, "{healthy} healthy hooks");
}
