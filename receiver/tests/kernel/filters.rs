//! Tests that only packets selected by the filter are measured.

use std::{
    net::{SocketAddr, UdpSocket},
    process,
    time::Duration,
};

use super::{
    latency::{DURATION, LOST, on_functions, sees_datagrams},
    support::{
        line::Line,
        sidecar::Sidecar,
        surroundings::{alone, patience, wait_for},
        talk::Talk,
        wire::{Version, Wire},
    },
};

const LAYERS: [&str; 4] = ["ip", "transport", "socket_enqueued", "socket_read"];
const MESSAGES: usize = 60;
const SIZE: usize = 200;

fn filtered(filter: &str) -> Sidecar {
    let sidecar = Sidecar::configured(&format!("packets: {{filter: {{{filter}}}}}\n"));
    let line = sidecar.snapshot();
    // If one layer is attached, all layers must be. Otherwise the kernel refused a program because of the filter.
    let layers = LAYERS.map(|layer| on_functions(&line, layer));
    assert!(layers == [layers[0]; LAYERS.len()], "{LAYERS:?} on functions: {layers:?}");
    sidecar
}

/// Returns the packets that were measured at a layer, and those that the filter could not decide.
fn counts(line: &Line, layer: &str, transport: Option<&str>) -> [f64; 2] {
    let mut attributes = vec![("undercurrent.network.layer", layer), ("network.type", "ipv4")];
    attributes.extend(transport.map(|transport| ("network.transport", transport)));
    let unfiltered = [attributes.as_slice(), &[("undercurrent.reason", "not_filterable")]].concat();
    [line.total(DURATION, &attributes), line.total(LOST, &unfiltered)]
}

/// Returns the change of [`counts`] between two lines.
fn between(before: &Line, after: &Line, layer: &str, transport: Option<&str>) -> [f64; 2] {
    let (before, after) = (counts(before, layer, transport), counts(after, layer, transport));
    let change = [after[0] - before[0], after[1] - before[1]];
    eprintln!("{layer} {}: {change:?}", transport.unwrap_or("any"));
    change
}

/// Returns true if a reader on another CPU may be faster than the tracepoint of the layer. The datagram then
/// counts as `not_filterable`.
fn reads_may_overtake(line: &Line, layer: &str) -> bool {
    layer == "socket_enqueued" && !on_functions(line, layer)
}

fn receiver(wire: &Wire) -> UdpSocket {
    let socket = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    socket.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
    socket
}

fn send(wire: &Wire, to: &UdpSocket, count: usize) {
    let to: SocketAddr = to.local_addr().unwrap();
    let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    for _ in 0..count {
        assert_eq!(from.send_to(&[0x55; SIZE], to).unwrap(), SIZE);
    }
}

fn receive(socket: &UdpSocket, count: usize) {
    for _ in 0..count {
        assert_eq!(socket.recv(&mut [0; SIZE]).unwrap(), SIZE);
    }
}

#[test]
fn one_of_thousands_of_ports_is_measured_and_others_are_not() {
    let Some(_alone) = alone("filters by port") else { return };
    let wire = Wire::best(Version::Ipv4);
    let [chosen, other] = [(); 2].map(|()| receiver(&wire));
    let port = chosen.local_addr().unwrap().port();
    let ports: Vec<String> = (1..5000).chain([port]).map(|port: u16| port.to_string()).collect();
    let sidecar = filtered(&format!("ports: [{}]", ports.join(", ")));
    let before = sidecar.snapshot();
    for (socket, count) in [(&chosen, MESSAGES), (&other, MESSAGES / 2)] {
        send(&wire, socket, count);
        // The kernel skips a kprobe that interrupts the program of a read.
        wire.settled();
        receive(socket, count);
    }
    let after = sidecar.snapshot();
    for layer in LAYERS.into_iter().filter(|layer| sees_datagrams(&after, layer)) {
        match layer {
            // The transport header has not been parsed at this layer.
            "ip" => {
                let [measured, unfiltered] = between(&before, &after, layer, None);
                assert!(measured == 0.0 && unfiltered >= (MESSAGES + MESSAGES / 2) as f64);
            }
            // Some drivers leave headers in page fragments, which these programs cannot read before the protocol
            // has pulled them.
            "transport" => {
                let [measured, unfiltered] = between(&before, &after, layer, Some("udp"));
                assert!(measured <= MESSAGES as f64 && measured + unfiltered >= MESSAGES as f64);
            }
            layer => assert_eq!(between(&before, &after, layer, Some("udp")), [MESSAGES as f64, 0.0], "{layer}"),
        }
    }
}

#[test]
fn one_namespace_is_measured_and_others_are_not() {
    let Some(_alone) = alone("filters by network namespace") else { return };
    let wire = Wire::best(Version::Ipv4);
    let sidecar = filtered(&format!("network_namespaces: [{}, /run/netns/undercurrent-none]", wire.right.inode()));
    let before = sidecar.snapshot();
    let mut talk = Talk::open(&wire);
    talk.udp(MESSAGES, SIZE);
    let after = sidecar.snapshot();
    for layer in LAYERS.into_iter().filter(|layer| sees_datagrams(&after, layer) && *layer != "ip") {
        // Each message has a reply, which arrives in the other namespace.
        let [measured, unfiltered] = between(&before, &after, layer, Some("udp"));
        if layer == "transport" && unfiltered > 0.0 {
            // Before Linux 6.2, programs on the cgroup hook have no access to the kernel's `sk_buff`.
            assert_eq!(measured, 0.0);
        } else {
            assert_eq!(measured + unfiltered, MESSAGES as f64, "{layer}");
            assert!(measured > 0.0, "{layer}: all of {unfiltered} datagrams are unfiltered");
            assert!(unfiltered == 0.0 || reads_may_overtake(&after, layer), "{layer}: {unfiltered} are unfiltered");
        }
    }
}

#[test]
fn an_interface_that_appears_later_is_measured_from_then_on() {
    let Some(_alone) = alone("filters by interface") else { return };
    let wire = Wire::veth(Version::Ipv4);
    // The filter applies to the names of interfaces that the sidecar sees.
    let sidecar = wire.right.run(|| filtered("interfaces: [later, undercurrent-no]"));
    let mut talk = Talk::open(&wire);
    let before = sidecar.snapshot();
    talk.udp(MESSAGES, SIZE);
    let without = sidecar.snapshot();
    for layer in LAYERS.into_iter().filter(|layer| sees_datagrams(&without, layer) && *layer != "ip") {
        assert_eq!(between(&before, &without, layer, Some("udp"))[0], 0.0, "{layer}");
    }
    for change in ["down", "name later", "up"] {
        wire.right.ip(&format!("link set dev {} {change}", if change == "up" { "later" } else { "wire" }));
    }
    wait_for("the interface to be measured", patience(Duration::from_secs(10)), || {
        let before = sidecar.snapshot();
        talk.udp(1, SIZE);
        let [measured, unfiltered] = between(&before, &sidecar.snapshot(), "transport", Some("udp"));
        (measured + unfiltered > 0.0).then_some(())
    });
    let before = sidecar.snapshot();
    talk.udp(MESSAGES, SIZE);
    let after = sidecar.snapshot();
    for layer in LAYERS.into_iter().filter(|layer| sees_datagrams(&after, layer) && *layer != "ip") {
        let change = between(&before, &after, layer, Some("udp"));
        // The filter could decide all packets, except those with headers in page fragments.
        let told = change[1] == 0.0 || layer != "transport";
        let expected = if told { MESSAGES as f64 } else { 0.0 };
        let missing = expected - change[0];
        let most = if reads_may_overtake(&after, layer) { change[1].min(expected - 1.0) } else { 0.0 };
        assert!((0.0..=most).contains(&missing), "{layer}: {change:?}");
    }
}

#[test]
fn only_the_reads_of_a_process_are_measured() {
    let Some(_alone) = alone("filters by process") else { return };
    let wire = Wire::best(Version::Ipv4);
    for (process, share) in [(process::id(), 1.0), (1, 0.0)] {
        let sidecar = filtered(&format!("processes: [{process}]"));
        let mut talk = Talk::open(&wire);
        let before = sidecar.snapshot();
        talk.tcp(MESSAGES, SIZE);
        let after = sidecar.snapshot();
        let reads = talk.tcp_reads as f64 * share;
        assert_eq!(between(&before, &after, "socket_read", Some("tcp")), [reads, 0.0], "process {process}");
        // The reader is unknown at this layer.
        let [measured, unfiltered] = between(&before, &after, "transport", Some("tcp"));
        assert!(measured == 0.0 && unfiltered >= talk.tcp_reads as f64);
    }
}

#[test]
fn packets_are_measured_where_queues_are_long() {
    let Some(_alone) = alone("filters by the receive queue") else { return };
    let wire = Wire::best(Version::Ipv4);
    let (sidecar, socket) = (filtered("min_receive_queue: 3"), receiver(&wire));
    let before = sidecar.snapshot();
    send(&wire, &socket, 5);
    wire.settled();
    receive(&socket, 5);
    let after = sidecar.snapshot();
    // The queue has one to five packets including the arriving one, and zero to four besides the one being read.
    for (layer, long) in [("socket_enqueued", 3.0), ("socket_read", 2.0)] {
        if sees_datagrams(&after, layer) {
            assert_eq!(between(&before, &after, layer, Some("udp")), [long, 0.0], "{layer}");
        }
    }
    // Zero to four packets before the arriving one, if the hook knows the socket.
    let [measured, unfiltered] = between(&before, &after, "transport", Some("udp"));
    assert!([measured, unfiltered] == [2.0, 0.0] || (measured == 0.0 && unfiltered >= 5.0));
}
