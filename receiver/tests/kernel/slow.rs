//! Tests of slow packets: their spans agree with the clocks of the test.

mod budget;
mod clock;
mod delivery;
mod forwarded;
mod payload;
mod sent;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use super::{
    latency::{DURATION, on_functions, sees_datagrams, served_by},
    support::{
        line::{Line, Value},
        sidecar::{Sidecar, wall_clock},
        span::Span,
        surroundings::{alone, patience, skip, virtual_machine, wait_for},
        wire::{Version, Wire},
    },
    waits::LONG,
};

/// The delay of slow readers.
const LATE: Duration = Duration::from_millis(150);
/// The accepted difference between the clock of a test and the times of a span.
const PRECISION: u64 = 50_000;
const SMALL: usize = 200;
const LAYER: &str = "undercurrent.network.layer";
/// The step of a packet from a sender on this node.
const SEND: &str = "network send";

/// Returns a configuration with more settings of `slow_packets`.
///
/// Signals that take long to start or to read on an emulated processor are off.
pub fn settings(more: &str) -> String {
    let off = "network_functions: {enabled: false}, workload_cpu: {enabled: false}, transmit: {enabled: false}";
    // Tests send more slow packets at once than the default budget admits.
    let budget = if more.contains("budget") { "" } else { "budget: 10, " };
    format!("signals: {{{off}, slow_packets: {{threshold: 50ms, uniform_share: none, {budget}{more}}}}}\n")
}

/// A read and the clock around it.
pub struct Slow {
    /// Before and after the send.
    pub sent: [u64; 2],
    /// Before and after the read.
    pub read: [u64; 2],
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl Slow {
    /// Sends, waits and reads.
    pub fn exchange(
        ends: [SocketAddr; 2],
        send: impl FnOnce() -> usize,
        delay: impl FnOnce(),
        read: impl FnOnce() -> usize,
    ) -> Self {
        let before = wall_clock();
        let sent = send();
        let sent_at = [before, wall_clock()];
        delay();
        let before = wall_clock();
        assert_eq!(read(), sent);
        let [local, peer] = ends;
        Self { sent: sent_at, read: [before, wall_clock()], local, peer }
    }

    fn is_of(&self, span: &Span) -> bool {
        span.attribute("network.local.port") == self.local.port().to_string()
            && span.attribute("network.peer.port") == self.peer.port().to_string()
            && span.end + PRECISION >= self.read[0]
    }

    /// Asserts that a span and its steps agree with the clock.
    fn assert(&self, span: &Span, steps: &[Span], layers: &[&str]) {
        let within = |time: u64, [before, after]: [u64; 2]| (before - PRECISION..=after + PRECISION).contains(&time);
        assert!(within(span.start, self.sent), "the start of {span:?} is not within {:?}", self.sent);
        assert!(within(span.end, self.read), "the end of {span:?} is not within {:?}", self.read);
        assert_eq!(span.attribute("network.local.address"), self.local.ip().to_string(), "{span:?}");
        assert_eq!(span.attribute("network.peer.address"), self.peer.ip().to_string());
        assert_eq!(span.attribute("process.pid"), std::process::id().to_string());
        assert_eq!((span.attribute("undercurrent.selection"), span.attribute(LAYER)), ("slow", "socket_read"));
        assert_eq!((span.name.as_str(), span.parent.len()), ("network receive", 0));
        let found: Vec<&str> =
            steps.iter().filter(|step| step.name != SEND).map(|step| step.attribute(LAYER)).collect();
        // Before Linux 5.18, TCP's segments have a receive timestamp at `ip` over loopback and veth too.
        let after_ip = |all: &[&str]| {
            all.iter().filter(|layer| **layer != "ip").map(|layer| (*layer).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(after_ip(&found), after_ip(layers));
        assert!(found.contains(&"ip") || !layers.contains(&"ip"), "{steps:?}");
        let mut before = span.start;
        for step in steps {
            assert_eq!((&step.trace, &step.parent, step.start), (&span.trace, &span.id, before), "{step:?}");
            before = step.end;
        }
        assert_eq!(before, span.end);
        if let Some(last) = steps.last() {
            assert!(last.start <= self.read[0], "{last:?} begins after the read");
        }
    }
}

/// Waits for the first span of a slow read, and returns it with its steps.
pub fn traced(sidecar: &Sidecar, slow: &Slow) -> (Span, Vec<Span>) {
    let find = || {
        let spans = sidecar.spans();
        let span = spans.iter().find(|span| slow.is_of(span))?.clone();
        let steps = spans.iter().filter(|step| step.parent == span.id).cloned().collect();
        Some((span, steps))
    };
    wait_for("the span of a slow packet", patience(Duration::from_secs(5)), find)
}

/// Returns a wire whose datagrams the hook at the read sees. Over veth, long ones are fragments, whose copy checks their sum and has no
/// tracepoint.
fn wire(version: Version, line: &Line) -> Wire {
    if sees_datagrams(line, "socket_read") { Wire::veth(version) } else { Wire::loopback(version) }
}

pub fn stream(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let client = wire.left.run(|| TcpStream::connect(address).unwrap());
    client.set_nodelay(true).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

fn sockets(wire: &Wire) -> (UdpSocket, UdpSocket) {
    let server = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let client = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    client.connect(server.local_addr().unwrap()).unwrap();
    (client, server)
}

fn read_late(client: &TcpStream, server: &TcpStream, delay: impl FnOnce()) -> Slow {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || (&*client).write(&[0x55; SMALL]).unwrap();
    Slow::exchange(ends, send, delay, || (&*server).read(&mut [0; 2 * SMALL]).unwrap())
}

fn receive_late(client: &UdpSocket, server: &UdpSocket, delay: impl FnOnce(), size: usize) -> Slow {
    let ends = [server.local_addr().unwrap(), client.local_addr().unwrap()];
    let send = || client.send(&vec![0x55; size]).unwrap();
    Slow::exchange(ends, send, delay, || server.recv(&mut vec![0; size]).unwrap())
}

/// Delays a read.
fn late() {
    thread::sleep(LATE);
}

/// Returns the layers that have a hook.
fn layers(sidecar: &Sidecar) -> Vec<&'static str> {
    let line = sidecar.snapshot();
    let served = |layer: &&'static str| served_by(&line, layer).is_some();
    ["ip", "transport", "socket_enqueued", "socket_read"].into_iter().filter(served).collect()
}

/// Reads a segment late, and returns its span with its steps.
fn late_segment(sidecar: &Sidecar, wire: &Wire) -> (Slow, Span, Vec<Span>) {
    let (client, server) = stream(wire);
    // The first reads fill caches.
    read_late(&client, &server, || ());
    let slow = read_late(&client, &server, late);
    let (span, steps) = traced(sidecar, &slow);
    (slow, span, steps)
}

/// Reads a datagram late, and returns its span with its steps.
fn late_datagram(sidecar: &Sidecar, wire: &Wire, size: usize) -> (Slow, Span, Vec<Span>) {
    let (client, server) = sockets(wire);
    receive_late(&client, &server, || (), size);
    let slow = receive_late(&client, &server, late, size);
    let (span, steps) = traced(sidecar, &slow);
    (slow, span, steps)
}

fn late_readers(version: Version) {
    let sidecar = Sidecar::configured(&settings(""));
    let line = sidecar.snapshot();
    let wire = if virtual_machine().is_some() { wire(version, &line) } else { Wire::loopback(version) };
    if served_by(&line, "socket_read").is_none() {
        return skip("slow packets: nothing serves socket_read");
    }
    let mut of_udp = layers(&sidecar);
    // Over loopback and veth, TCP's segments have no receive timestamp before the transport protocol.
    let of_tcp: Vec<_> = of_udp.iter().copied().filter(|layer| *layer != "ip").collect();
    let (slow, span, steps) = late_segment(&sidecar, &wire);
    slow.assert(&span, &steps, &of_tcp);
    if on_functions(&line, "ip") {
        // The departure is known where the kernel marks it, else the time at `ip`.
        let has_send = steps.iter().any(|step| step.name == SEND);
        assert_ne!(has_send, steps.iter().any(|step| step.attribute(LAYER) == "ip"), "{steps:?}");
    }
    assert_eq!((span.attribute("network.transport"), span.attribute("network.type")), ("tcp", version.name()));

    let size = if sees_datagrams(&line, "socket_read") { SMALL } else { LONG };
    let (slow, span, steps) = late_datagram(&sidecar, &wire, size);
    if !on_functions(&line, "ip") {
        of_udp.retain(|layer| *layer != "ip");
    }
    slow.assert(&span, &steps, &of_udp);
    assert_eq!((span.attribute("network.transport"), span.attribute("network.type")), ("udp", version.name()));
    assert_exemplars(&sidecar);
}

/// Asserts that the histogram of reads gets exemplars of spans, in the order of time.
fn assert_exemplars(sidecar: &Sidecar) {
    let exemplars = || {
        let lines = sidecar.lines();
        let points = lines.iter().flat_map(|line| line.find(DURATION, &[(LAYER, "socket_read")]));
        let histograms = points.filter_map(|point| match &point.value {
            Value::Histogram(histogram) => Some(histogram.exemplars.clone()),
            _ => None,
        });
        let exemplars: Vec<_> = histograms.flatten().collect();
        (exemplars.len() >= 2).then_some(exemplars)
    };
    let exemplars = wait_for("two exemplars", patience(Duration::from_secs(5)), exemplars);
    for exemplar in exemplars {
        let spans = sidecar.spans();
        let span =
            spans.iter().find(|span| span.id == exemplar.span_id).expect("the exemplar's span was exported before");
        assert_eq!((&span.trace, span.end), (&exemplar.trace_id, exemplar.time_unix_nano));
        let value = format!("{:?}", exemplar.value);
        let send = spans.iter().find(|step| step.parent == span.id && step.name == SEND);
        let received = send.map_or(span.start, |send| send.end);
        assert!(value.contains(&format!("{:?}", (span.end - received) as f64 / 1e9)), "{value} of {span:?}");
    }
}

#[test]
fn slow_packets_have_spans_that_agree_with_the_clock_over_ipv4() {
    let Some(_alone) = alone("slow packets over IPv4") else { return };
    late_readers(Version::Ipv4);
}

#[test]
fn slow_packets_have_spans_that_agree_with_the_clock_over_ipv6() {
    let Some(_alone) = alone("slow packets over IPv6") else { return };
    late_readers(Version::Ipv6);
}
