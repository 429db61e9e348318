//! Tests that measured and lost packets at every layer add up to the kernel's counts.

use std::net::UdpSocket;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::support::{
    counters::{Received, dropped},
    line::{Line, Value},
    sidecar::Sidecar,
    surroundings::{alone, often, skip, tells_left_out, virtual_machine},
    talk::Talk,
    truth::record,
    wire::{Version, Wire},
};

/// `undercurrent.network.receive.duration`.
pub const DURATION: &str = "undercurrent.network.receive.duration";
/// `undercurrent.lost`.
pub const LOST: &str = "undercurrent.lost";
/// Reasons of packets in no histogram.
pub const REASONS: [&str; 4] = ["no_timestamp", "transmit_timestamp", "negative", "head_of_line"];
/// Fits into a frame, and is copied in one piece.
const SMALL: usize = 200;
/// Sent in fragments over a wire, and in one piece over loopback.
const LARGE: usize = 8000;

/// Returns the packets that a layer measured or lost.
pub fn seen(line: &Line, layer: &str, transport: Option<&str>, version: Version) -> f64 {
    let mut attributes = vec![("undercurrent.network.layer", layer), ("network.type", version.name())];
    attributes.extend(transport.map(|transport| ("network.transport", transport)));
    let lost = REASONS.iter().map(|reason| {
        let lost = [attributes.as_slice(), &[("undercurrent.reason", reason)]].concat();
        line.total(LOST, &lost)
    });
    line.total(DURATION, &attributes) + lost.sum::<f64>()
}

/// Returns the runs of a hook's programs that the kernel skipped.
pub fn left_out(line: &Line, hook: &str) -> f64 {
    line.total(LOST, &[("undercurrent.hook", hook), ("undercurrent.reason", "recursion")])
}

/// Returns the alternate that serves a hook.
pub fn served_by(line: &Line, hook: &str) -> Option<String> {
    let status = [("undercurrent.hook", hook)];
    let mut states = line.find("undercurrent.hook.status", &status);
    states.find(|point| point.amount() > 0.0)?.attributes.get("undercurrent.alternate").cloned()
}

/// Returns the name of the alternate that sees packets arrive for their sockets, at the level of the sidecar; `None` if none does.
pub fn arrivals_served_by(line: &Line) -> Option<String> {
    served_by(line, "socket_enqueued").or_else(|| served_by(line, "socket_arrival"))
}

/// Returns the name of the alternate that sees tasks read sockets, at the level of the sidecar; `None` if none does.
pub fn readers_served_by(line: &Line) -> Option<String> {
    served_by(line, "socket_reader").or_else(|| served_by(line, "datagram_reader"))
}

/// Returns true if a hook is attached to kernel functions, where it sees every packet.
pub fn on_functions(line: &Line, hook: &str) -> bool {
    served_by(line, hook).is_some_and(|by| matches!(by.as_str(), "fentry" | "kprobe"))
}

/// Returns true if a layer sees datagrams of any length.
pub fn sees_datagrams(line: &Line, layer: &str) -> bool {
    served_by(line, layer).is_some_and(|by| layer != "socket_read" || by != "tracepoint")
}

/// The required precision of a comparison.
#[derive(Clone, Copy)]
pub enum Agreement {
    /// Equality, on a machine without other traffic.
    Exact,
    /// Within one percent.
    Percent,
}

/// Asserts that the sidecar's count equals the kernel's count in the test's namespaces. Other programs on the
/// machine may add packets.
pub fn assert_agrees(what: &str, seen: f64, counted: u64, others: u64, agreement: Agreement) {
    let (counted, others) = (counted as f64, others as f64);
    eprintln!("{what}: {seen} seen, {counted} counted, others {others}");
    assert!(counted > 0.0, "{what}: there was no traffic");
    let (below, above) = match agreement {
        Agreement::Exact if virtual_machine().is_some() => (0.0, 0.0),
        Agreement::Exact => (0.0, 0.01),
        Agreement::Percent => (0.01, 0.01),
    };
    assert!(seen >= counted * (1.0 - below), "{what}: {seen} seen, {counted} counted");
    assert!(
        seen <= (counted + others) * (1.0 + above),
        "{what}: {seen} were seen, and {counted} and {others} of others counted"
    );
}

fn messages() -> usize {
    if virtual_machine().is_some() { 400 } else { 5000 }
}

/// The traffic of a phase, with the counts of the sidecar and the kernel.
struct Phase {
    version: Version,
    before: Line,
    after: Line,
    counted: Received,
    others: Received,
    talk: Talk,
}

impl Phase {
    fn run(sidecar: &Sidecar, wire: &Wire, exchange: impl FnOnce(&mut Talk)) -> Self {
        let others = Received::by_processes();
        let before = sidecar.snapshot();
        let counted_before = wire.received();
        let mut talk = Talk::open(wire);
        exchange(&mut talk);
        let (counted, after) = (wire.settled() - counted_before, sidecar.snapshot());
        let others = Received::by_processes() - others;
        Self { version: wire.version, before, after, counted, others, talk }
    }

    fn seen(&self, layer: &str, transport: Option<&str>) -> f64 {
        seen(&self.after, layer, transport, self.version) - seen(&self.before, layer, transport, self.version)
    }

    fn assert(&self, layer: &str, transport: Option<&str>, counted: u64, others: u64, agreement: Agreement) {
        let what = format!("{layer} {} {}", transport.unwrap_or("any"), self.version.name());
        // The kernel skips a kprobe while its CPU runs another kprobe's program or a process updates a map.
        let probed = served_by(&self.after, layer).is_some_and(|by| by == "kprobe");
        let agreement = if probed && !tells_left_out() { Agreement::Percent } else { agreement };
        let left_out = left_out(&self.after, layer) - left_out(&self.before, layer);
        // A reader on another CPU may be faster than the program at the exit of the enqueuing function.
        let of = [("undercurrent.network.layer", layer), ("undercurrent.reason", "missing_start")];
        let left_out = left_out + self.after.total(LOST, &of) - self.before.total(LOST, &of);
        // The hook has programs for both transports, so skipped runs may include other packets.
        let seen = self.seen(layer, transport);
        let seen = seen + left_out.min((counted as f64 - seen).max(0.0));
        assert_agrees(&what, seen, counted, others, agreement);
    }

    /// Layers without an alternate have no points, not even zeros.
    fn served(&self, layer: &str) -> bool {
        let served = served_by(&self.after, layer).is_some();
        let attributes = [("undercurrent.network.layer", layer)];
        let points = [DURATION, LOST].map(|metric| self.after.find(metric, &attributes).count());
        assert!(served || points == [0, 0], "nothing serves {layer}, which has {points:?} points");
        served
    }
}

fn small_messages(sidecar: &Sidecar, wire: &Wire) {
    let phase = Phase::run(sidecar, wire, |talk| {
        talk.tcp(messages(), SMALL);
        talk.udp(messages(), SMALL);
    });
    let (counted, others) = (phase.counted, phase.others);
    let udp = counted.udp_of(wire.version);
    assert_eq!(udp, phase.talk.udp_reads, "the kernel counts a datagram when it is read");

    if phase.served("ip") {
        phase.assert("ip", None, counted.ip_of(wire.version), others.ip_of(wire.version), Agreement::Exact);
    }
    // The cgroup hook does not see segments without a socket.
    let tcp = if on_functions(&phase.after, "transport") { Agreement::Exact } else { Agreement::Percent };
    assert!(phase.served("transport"));
    phase.assert("transport", Some("tcp"), counted.tcp, others.tcp, tcp);
    phase.assert("transport", Some("udp"), udp, others.udp_of(wire.version), Agreement::Exact);
    record(DURATION, phase.seen("transport", Some("udp")), udp as f64..=(udp + others.udp_of(wire.version)) as f64);

    if phase.served("socket_enqueued") {
        // Each message is a separate segment. No connection ended, so no FIN was queued. TCP may retransmit on a
        // slow machine, but a retransmitted segment is not queued again.
        assert!(phase.talk.data_segments() >= phase.talk.tcp_reads);
        phase.assert("socket_enqueued", Some("tcp"), phase.talk.tcp_reads, others.tcp, Agreement::Exact);
        phase.assert("socket_enqueued", Some("udp"), udp, others.udp_of(wire.version), Agreement::Exact);
    }
    if phase.served("socket_read") {
        // Other programs may read a segment in several parts.
        phase.assert("socket_read", Some("tcp"), phase.talk.tcp_reads, others.tcp * 4, Agreement::Exact);
        if on_functions(&phase.after, "socket_read") {
            phase.assert(
                "socket_read",
                Some("udp"),
                phase.talk.udp_reads,
                others.udp_of(wire.version),
                Agreement::Exact,
            );
        } else {
            // A function without a tracepoint copies datagrams in one piece, and datagrams with a checksum that is
            // verified during the copy.
            let read = phase.seen("socket_read", Some("udp"));
            assert!(read <= (udp + others.udp_of(wire.version)) as f64, "{read} of {udp} datagrams were read");
        }
    }
}

/// Checks datagrams in fragments: the network layer sees fragments, and higher layers see the datagram.
fn large_messages(sidecar: &Sidecar, wire: &Wire) {
    let phase = Phase::run(sidecar, wire, |talk| talk.udp(messages() / 10, LARGE));
    let (counted, others) = (phase.counted, phase.others);
    let (udp, others_udp) = (counted.udp_of(wire.version), others.udp_of(wire.version));
    assert!(counted.ip_of(wire.version) > 5 * udp, "nothing was sent in fragments: {counted:?}");
    if phase.served("ip") {
        phase.assert("ip", None, counted.ip_of(wire.version), others.ip_of(wire.version), Agreement::Exact);
    }
    phase.assert("transport", Some("udp"), udp, others_udp, Agreement::Exact);
    if on_functions(&phase.after, "socket_read") {
        phase.assert("socket_read", Some("udp"), phase.talk.udp_reads, others_udp, Agreement::Exact);
    }
}

/// Checks loopback. It omits checksums and carries large datagrams in pages, so the tracepoint sees their copies.
fn loopback(sidecar: &Sidecar, version: Version) {
    let wire = Wire::loopback(version);
    let phase = Phase::run(sidecar, &wire, |talk| talk.udp(messages() / 10, 3 * LARGE));
    let (udp, others) = (phase.counted.udp_of(version), phase.others.udp_of(version));
    phase.assert("transport", Some("udp"), udp, others, Agreement::Exact);
    if phase.served("socket_read") {
        phase.assert("socket_read", Some("udp"), phase.talk.udp_reads, others, Agreement::Exact);
    }
}

fn every_layer(version: Version) {
    let sidecar = Sidecar::start(often());
    let wire = Wire::best(version);
    small_messages(&sidecar, &wire);
    large_messages(&sidecar, &wire);
    loopback(&sidecar, version);
    let last = sidecar.stop().pop().unwrap();
    for point in last.find(DURATION, &[]) {
        let Value::Histogram(histogram) = &point.value else { continue };
        assert!(histogram.sum.unwrap() < histogram.count as f64, "a mean of more than a second: {point:?}");
    }
}

#[test]
fn every_layer_counts_what_the_kernel_counted_over_ipv4() {
    let Some(_alone) = alone("layers over IPv4") else { return };
    every_layer(Version::Ipv4);
}

#[test]
fn every_layer_counts_what_the_kernel_counted_over_ipv6() {
    let Some(_alone) = alone("layers over IPv6") else { return };
    every_layer(Version::Ipv6);
}

/// Sends datagrams to a socket that no program reads, and whose receive buffer takes some of them.
fn refused(version: Version) {
    const SENT: u64 = 200;
    /// Datagrams of other programs on a real machine.
    const OTHERS: f64 = 5.0;
    let (sidecar, wire) = (Sidecar::start(often()), Wire::veth(version));
    let enqueued = |line: &Line| seen(line, "socket_enqueued", Some("udp"), version);
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    left.connect(right.local_addr().unwrap()).unwrap();
    // The first datagram waits for the neighbour's address.
    left.send(&[0x55; SMALL]).unwrap();
    right.recv(&mut [0; SMALL]).unwrap();
    set_socket_recv_buffer_size(&right, 8192).unwrap();
    let before = sidecar.snapshot();
    if served_by(&before, "socket_enqueued").is_none() {
        return skip("a full queue of datagrams: no hook serves socket_enqueued");
    }
    (0..SENT).for_each(|_| assert_eq!(left.send(&[0x55; SMALL]).unwrap(), SMALL));
    wire.settled();
    let [_, full] = dropped(&wire.right, version);
    let counted = enqueued(&sidecar.snapshot()) - enqueued(&before);
    eprintln!("{version:?}: {counted} of {SENT} enqueued, {full} refused");
    assert!((1..SENT).contains(&full), "{full} of {SENT} found the queue full");
    let others = if virtual_machine().is_some() { 0.0 } else { OTHERS };
    let kept = (SENT - full) as f64;
    assert!((kept..=kept + others).contains(&counted), "{counted} of {kept}");
}

#[test]
fn datagrams_that_find_the_queue_full_are_not_enqueued() {
    let Some(_alone) = alone("a full queue of datagrams") else { return };
    Version::ALL.into_iter().for_each(refused);
}
