//! Tests of slow packets: their spans agree with the clocks of the test.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use super::{
    latency::{DURATION, LOST, on_functions, seen, sees_datagrams, served_by},
    support::{
        collector::Collector,
        line::{Line, Value},
        sidecar::{Sidecar, file, wall_clock},
        span::Span,
        surroundings::{alone, function, often, patience, skip, virtual_machine, wait_for},
        talk::Talk,
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    waits::LONG,
};

/// The delay of slow readers.
const LATE: Duration = Duration::from_millis(150);
/// The accepted difference between the clock of a test and the times of a span.
const PRECISION: u64 = 50_000;
const SMALL: usize = 200;
const EXPORTED: &str = "otel.sdk.exporter.span.exported";
const LAYER: &str = "undercurrent.network.layer";
/// The step of a packet from a sender on this node.
const SEND: &str = "network send";

/// Returns a configuration with more settings of `slow_packets`.
///
/// Signals that take long to start or to read on an emulated processor are off.
pub fn settings(more: &str) -> String {
    let off = "network_functions: {enabled: false}, workload_cpu: {enabled: false}, transmit: {enabled: false}";
    format!("signals: {{{off}, slow_packets: {{threshold: 50ms, uniform_share: none, {more}}}}}\n")
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
        assert_eq!(span.attribute("network.local.address"), self.local.ip().to_string());
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

fn read_late(client: &TcpStream, server: &TcpStream, delay: Duration) -> Slow {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || (&*client).write(&[0x55; SMALL]).unwrap();
    Slow::exchange(ends, send, || thread::sleep(delay), || (&*server).read(&mut [0; 2 * SMALL]).unwrap())
}

fn receive_late(client: &UdpSocket, server: &UdpSocket, delay: Duration, size: usize) -> Slow {
    let ends = [server.local_addr().unwrap(), client.local_addr().unwrap()];
    let send = || client.send(&vec![0x55; size]).unwrap();
    Slow::exchange(ends, send, || thread::sleep(delay), || server.recv(&mut vec![0; size]).unwrap())
}

/// Returns the layers that have a hook.
fn layers(sidecar: &Sidecar) -> Vec<&'static str> {
    let line = sidecar.snapshot();
    let served = |layer: &&'static str| served_by(&line, layer).is_some();
    ["ip", "transport", "socket_enqueued", "socket_read"].into_iter().filter(served).collect()
}

fn late_readers(version: Version) {
    let sidecar = Sidecar::configured(&settings(""));
    let wire = if virtual_machine().is_some() { Wire::veth(version) } else { Wire::loopback(version) };
    let line = sidecar.snapshot();
    if served_by(&line, "socket_read").is_none() {
        return skip("slow packets: nothing serves socket_read");
    }
    let mut of_udp = layers(&sidecar);
    // Over loopback and veth, TCP's segments have no receive timestamp before the transport protocol.
    let of_tcp: Vec<_> = of_udp.iter().copied().filter(|layer| *layer != "ip").collect();
    let (client, server) = stream(&wire);
    // The first reads fill caches.
    read_late(&client, &server, Duration::ZERO);
    let slow = read_late(&client, &server, LATE);
    let (span, steps) = traced(&sidecar, &slow);
    slow.assert(&span, &steps, &of_tcp);
    if on_functions(&line, "ip") {
        // The departure is known where the kernel marks it, else the time at `ip`.
        let has_send = steps.iter().any(|step| step.name == SEND);
        assert_ne!(has_send, steps.iter().any(|step| step.attribute(LAYER) == "ip"), "{steps:?}");
    }
    assert_eq!((span.attribute("network.transport"), span.attribute("network.type")), ("tcp", version.name()));

    let (client, server) = sockets(&wire);
    let size = if sees_datagrams(&line, "socket_read") { SMALL } else { LONG };
    receive_late(&client, &server, Duration::ZERO, size);
    let slow = receive_late(&client, &server, LATE, size);
    let (span, steps) = traced(&sidecar, &slow);
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

#[test]
fn the_budget_holds_and_no_other_measurement_is_lost() {
    const BUDGET: f64 = 5.0;
    let Some(_alone) = alone("the budget of slow packets") else { return };
    // Every packet takes longer until its read.
    let sidecar = Sidecar::configured(&settings("budget: 5").replace("50ms", "100ns"));
    let wire = Wire::loopback(Version::Ipv4);
    let before = sidecar.snapshot();
    if served_by(&before, "socket_read").is_none() {
        return skip("the budget of slow packets: nothing serves socket_read");
    }
    let mut talk = Talk::open(&wire);
    let start = Instant::now();
    talk.tcp(if virtual_machine().is_some() { 500 } else { 20_000 }, SMALL);
    let seconds = start.elapsed().as_secs_f64();
    let roots = |name: &Span| name.name == "network receive";
    let spans = || sidecar.spans().iter().filter(|span| roots(span)).count() as f64;
    let counted = |line: &Line| {
        let lost =
            |reason| line.total(LOST, &[("undercurrent.signal", "slow_packets"), ("undercurrent.reason", reason)]);
        ["over_budget", "slow_ring_full"].map(lost).iter().sum::<f64>()
    };
    let all = || {
        let line = sidecar.snapshot();
        (spans() + counted(&line) >= talk.tcp_reads as f64).then_some(line)
    };
    let after = wait_for("every slow packet to be a span or counted", patience(Duration::from_secs(5)), all);
    let read = |line: &Line| seen(line, "socket_read", Some("tcp"), Version::Ipv4);
    assert!(read(&after) - read(&before) >= talk.tcp_reads as f64, "reads are missing");
    eprintln!("{} slow packets in {seconds:.2} s, {} spans", talk.tcp_reads, spans());
    // A full budget pays for one second.
    assert!(spans() <= BUDGET * (seconds + 2.0), "{} spans in {seconds} s", spans());
    assert!(spans() >= BUDGET, "{} spans", spans());
}

/// A trace and a span, as in the W3C specification.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a request with a `traceparent` after other header fields.
fn request(padding: usize, span: &str, flags: &str) -> String {
    let padding = "p".repeat(padding);
    format!("GET / HTTP/1.1\r\nHost: a\r\nX-Padding: {padding}\r\nTraceParent: 00-{TRACE}-{span}-{flags}\r\n\r\n")
}

/// Sends a request, and reads it late.
fn request_late(client: &TcpStream, server: &TcpStream, request: &str) -> Slow {
    let ends = [server.local_addr().unwrap(), server.peer_addr().unwrap()];
    let send = || (&*client).write(request.as_bytes()).unwrap();
    Slow::exchange(ends, send, || thread::sleep(LATE), || (&*server).read(&mut [0; 8192]).unwrap())
}

/// Returns true if the programs can read the payload of a connection on this kernel.
fn reads_payload(line: &Line) -> bool {
    on_functions(line, "socket_read") || function("bpf_copy_from_user_str")
}

fn remote_parents(version: Version) {
    let sidecar = Sidecar::configured(&settings(""));
    let wire = Wire::loopback(version);
    let line = sidecar.snapshot();
    if served_by(&line, "socket_read").is_none() || !reads_payload(&line) {
        return skip("remote parents: programs cannot read payload on this kernel");
    }
    for padding in [0, 3_000] {
        let (client, server) = stream(&wire);
        let slow = request_late(&client, &server, &request(padding, SPAN, "01"));
        let (span, steps) = traced(&sidecar, &slow);
        assert_eq!((hexadecimal(&span.trace), hexadecimal(&span.parent)), (TRACE.to_owned(), SPAN.to_owned()));
        assert!(!steps.is_empty() && steps.iter().all(|step| step.trace == span.trace), "{steps:?}");
    }
    // A request that is not sampled has no span; a malformed field has no effect.
    let (client, server) = stream(&wire);
    request_late(&client, &server, &request(0, SPAN, "00"));
    let (other, answering) = stream(&wire);
    let slow = request_late(&other, &answering, &request(0, "b7ad6b716920333g", "01"));
    let (span, _) = traced(&sidecar, &slow);
    assert_eq!(span.parent.len(), 0, "{span:?}");
    let spans = sidecar.spans();
    let port = client.local_addr().unwrap().port().to_string();
    assert!(spans.iter().all(|span| span.attribute("network.peer.port") != port), "a request that is not sampled");
}

#[test]
fn spans_belong_to_the_trace_of_their_request_over_ipv4() {
    let Some(_alone) = alone("remote parents over IPv4") else { return };
    remote_parents(Version::Ipv4);
}

#[test]
fn spans_belong_to_the_trace_of_their_request_over_ipv6() {
    let Some(_alone) = alone("remote parents over IPv6") else { return };
    remote_parents(Version::Ipv6);
}

#[test]
fn without_inspection_no_span_has_a_remote_parent() {
    let Some(_alone) = alone("payload without inspection") else { return };
    let sidecar = Sidecar::configured(&settings("payload: none, redact_addresses: true"));
    let wire = Wire::loopback(Version::Ipv4);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("payload without inspection: nothing serves socket_read");
    }
    let (client, server) = stream(&wire);
    request_late(&client, &server, &request(0, SPAN, "01"));
    let name = "network receive";
    let find = || sidecar.spans().iter().find(|span| span.name == name).cloned();
    let span = wait_for("a span", patience(Duration::from_secs(5)), find);
    assert_eq!(span.parent.len(), 0);
    let keys: Vec<_> =
        span.attributes.keys().filter(|key| key.ends_with("address") || key.ends_with(".port")).collect();
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn a_stall_of_many_requests_is_one_span_with_links() {
    const REQUESTS: usize = 6;
    let Some(_alone) = alone("a stall") else { return };
    let sidecar = Sidecar::configured(&settings(""));
    let wire = Wire::loopback(Version::Ipv4);
    let line = sidecar.snapshot();
    if served_by(&line, "socket_read").is_none() || !reads_payload(&line) {
        return skip("a stall: programs cannot read payload on this kernel");
    }
    let connections: Vec<_> = (0..REQUESTS).map(|_| stream(&wire)).collect();
    let ids: Vec<String> = (1..=REQUESTS).map(|number| format!("{number:016x}")).collect();
    for ((client, _), id) in connections.iter().zip(&ids) {
        assert!((&*client).write(request(0, id, "01").as_bytes()).unwrap() > 0);
    }
    thread::sleep(LATE);
    for (_, server) in &connections {
        assert!((&*server).read(&mut [0; 8192]).unwrap() > 0);
    }
    let linked = || {
        let spans = sidecar.spans();
        let of = |span: &Span| span.links.iter().map(|(_, id)| hexadecimal(id)).collect::<Vec<_>>();
        let parents = spans.iter().filter(|span| span.name == "network receive" && !span.parent.is_empty());
        let mut all: Vec<_> = spans.iter().flat_map(of).chain(parents.map(|span| hexadecimal(&span.parent))).collect();
        all.sort();
        (all == ids).then(|| spans.iter().map(|span| span.links.len()).max().unwrap_or(0))
    };
    let most = wait_for("a link to each request", patience(Duration::from_secs(5)), linked);
    // The reads may be on both sides of the end of a batch.
    assert!(most >= REQUESTS / 2, "{most} links");
}

#[test]
fn spans_have_an_endpoint_of_their_own() {
    let Some(_alone) = alone("the endpoint of spans") else { return };
    let [metrics, traces] = [false, true].map(|takes| Collector::start_with(Duration::ZERO, usize::MAX, takes));
    let file = file(&settings(""));
    let arguments = ["--config", file.path().to_str().unwrap(), "--output", "otlp"];
    let endpoints = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*metrics.endpoint()),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces.endpoint()),
    ];
    let sidecar = Sidecar::start_with(often(), &arguments, &endpoints);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("the endpoint of spans: nothing serves socket_read");
    }
    let (client, server) = stream(&Wire::loopback(Version::Ipv4));
    let slow = read_late(&client, &server, LATE);
    let (span, _) = traced(&sidecar, &slow);
    wait_for("the span at its endpoint", patience(Duration::from_secs(5)), || {
        traces.spans().contains(&span).then_some(())
    });
    assert!(metrics.deliveries().iter().any(|delivery| delivery.accepted) && traces.deliveries().is_empty());
}

#[test]
fn refused_spans_are_counted_and_metrics_arrive() {
    let Some(_alone) = alone("refused spans") else { return };
    for takes_spans in [false, true] {
        let collector = Collector::start_with(Duration::ZERO, usize::MAX, takes_spans);
        let file = file(&settings(""));
        let arguments = ["--config", file.path().to_str().unwrap(), "--output", "otlp"];
        let endpoint = collector.endpoint();
        let sidecar = Sidecar::start_with(often(), &arguments, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
        if served_by(&sidecar.snapshot(), "socket_read").is_none() {
            return skip("refused spans: nothing serves socket_read");
        }
        let (client, server) = stream(&Wire::loopback(Version::Ipv4));
        let slow = read_late(&client, &server, LATE);
        let (span, _) = traced(&sidecar, &slow);
        let exporter = [("otel.component.type", "otlp_grpc_span_exporter")];
        let line = sidecar.line("spans with a finished export", |line| line.total(EXPORTED, &exporter) > 0.0);
        let refused = line.total(EXPORTED, &[exporter[0], ("error.type", "unimplemented")]);
        assert_eq!(refused > 0.0, !takes_spans);
        assert!(collector.deliveries().iter().any(|delivery| delivery.accepted), "metrics are accepted");
        assert_eq!(collector.spans().contains(&span), takes_spans);
        if takes_spans {
            let exported = line.total(EXPORTED, &exporter);
            record(EXPORTED, exported, exactly(collector.spans().len() as f64));
        }
    }
}
