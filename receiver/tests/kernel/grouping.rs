//! Tests of grouping packets by interface and network namespace.

use std::{net::UdpSocket, time::Duration};

use super::{
    extra::DELIVER,
    latency::{DURATION, LOST, on_functions, sees_datagrams},
    support::{
        line::{Line, Point},
        sidecar::Sidecar,
        surroundings::{alone, patience, skipped, wait_for},
        wire::{Version, Wire},
    },
    transmit,
};

const LAYERS: [&str; 4] = ["ip", "transport", "socket_enqueued", "socket_read"];
const INTERFACE: &str = "network.interface.name";
const NAMESPACE: &str = "undercurrent.network.namespace";
const WAIT: &str = "undercurrent.network.receive.wait.duration";
/// The number of datagrams on each interface.
const MESSAGES: [usize; 2] = [40, 70];

/// Two wires between two namespaces, with their sockets.
struct Wires {
    wire: Wire,
    /// The sender and the receiver on each wire.
    ends: [[UdpSocket; 2]; 2],
}

impl Wires {
    fn new() -> Self {
        let wire = Wire::veth(Version::Ipv4);
        wire.left.ip(&format!("link add other type veth peer name other netns {}", wire.right.path()));
        for (namespace, address) in [(&wire.left, "10.78.0.1/24"), (&wire.right, "10.78.0.2/24")] {
            namespace.ip(&format!("address add {address} dev other"));
            namespace.ip("link set dev other up");
        }
        ["wire", "other"].into_iter().for_each(|device| wire.left.queue(device));
        let ends = ["10.77.0", "10.78.0"].map(|network| {
            let receiver = wire.right.run(|| UdpSocket::bind(format!("{network}.2:0")).unwrap());
            receiver.set_read_timeout(Some(patience(Duration::from_secs(2)))).unwrap();
            let sender = wire.left.run(|| UdpSocket::bind(format!("{network}.1:0")).unwrap());
            sender.connect(receiver.local_addr().unwrap()).unwrap();
            [sender, receiver]
        });
        Self { wire, ends }
    }

    /// Sends over one of the wires, and reads the messages.
    fn send(&self, which: usize, messages: usize) {
        let [sender, receiver] = &self.ends[which];
        for _ in 0..messages {
            assert_eq!(sender.send(&[0x55; 1000]).unwrap(), 1000);
            assert_eq!(receiver.recv(&mut [0; 1000]).unwrap(), 1000);
        }
    }

    fn namespace(&self) -> String {
        self.wire.right.inode().to_string()
    }
}

/// Returns the packets at a layer in points with all of these attributes, and in points without an interface.
fn counts(line: &Line, metric: &str, attributes: &[(&str, &str)]) -> [f64; 2] {
    let ungrouped = |point: &&Point| !point.attributes.contains_key(INTERFACE);
    let apart: Vec<_> = attributes.iter().copied().filter(|(key, _)| ![INTERFACE, NAMESPACE].contains(key)).collect();
    [line.total(metric, attributes), line.find(metric, &apart).filter(ungrouped).map(Point::amount).sum()]
}

/// Returns the change of [`counts`] between two lines.
fn between(before: &Line, after: &Line, metric: &str, attributes: &[(&str, &str)]) -> [f64; 2] {
    let (before, after) = (counts(before, metric, attributes), counts(after, metric, attributes));
    [after[0] - before[0], after[1] - before[1]]
}

fn lost(line: &Line, reason: &str) -> f64 {
    line.total(LOST, &[("undercurrent.signal", "latency"), ("undercurrent.reason", reason)])
}

#[test]
fn packets_are_told_apart_by_interface_and_namespace() {
    let Some(_alone) = alone("groups by interface") else { return };
    let wires = Wires::new();
    let configuration = format!(
        "packets: {{group: {{by: [interface, network_namespace]}}}}\nsignals: {{latency: {{extra_layers: [{DELIVER}]}}}}\n"
    );
    let (namespace, sidecar) = (wires.namespace(), Sidecar::configured(&configuration));
    let before = sidecar.snapshot();
    (0..2).for_each(|which| wires.send(which, MESSAGES[which]));
    let after = sidecar.snapshot();
    assert_eq!(on_functions(&after, DELIVER), on_functions(&after, "ip"), "it is a layer where any function is");
    let mut told = 0;
    for layer in LAYERS.into_iter().chain([DELIVER]).filter(|layer| sees_datagrams(&after, layer)) {
        for (interface, messages) in ["wire", "other"].into_iter().zip(MESSAGES) {
            let attributes = [("undercurrent.network.layer", layer), (INTERFACE, interface), (NAMESPACE, &namespace)];
            let [of, ungrouped] = between(&before, &after, DURATION, &attributes);
            eprintln!("{layer} by {interface}: {of} of {messages}, {ungrouped} are told of no interface");
            // Before Linux 6.2, a cgroup program cannot read a packet's namespace.
            if ungrouped == 0.0 {
                assert_eq!(of, messages as f64, "{layer} by {interface}");
                told += 1;
            } else {
                assert!(of == 0.0 && layer != "ip" && !on_functions(&after, layer), "{layer}: {of}");
                assert!(lost(&after, "unknown_interface") >= ungrouped, "{layer}");
            }
        }
    }
    assert!(told > 0 || lost(&after, "unknown_interface") > 0.0);
    if [2, 3].iter().all(|place| on_functions(&after, LAYERS[*place])) {
        for (interface, messages) in ["wire", "other"].into_iter().zip(MESSAGES) {
            let waits = between(&before, &after, WAIT, &[(INTERFACE, interface), (NAMESPACE, &namespace)]);
            assert_eq!(waits, [messages as f64, 0.0], "waits by {interface}");
        }
    }
    let sender = wires.wire.left.inode().to_string();
    for (interface, messages) in ["wire", "other"].into_iter().zip(MESSAGES) {
        let udp = [("undercurrent.network.stage", "qdisc"), ("network.transport", "udp")];
        let attributes = [&udp[..], &[(INTERFACE, interface), (NAMESPACE, &sender)]].concat();
        let sent = between(&before, &after, transmit::DURATION, &attributes);
        eprintln!("qdisc by {interface}: {sent:?} of {messages}");
        assert!(sent[0] <= messages as f64 && sent[0] >= messages as f64 - skipped(messages), "{interface}: {sent:?}");
    }
}

#[test]
fn what_is_beyond_the_limit_is_counted_and_has_room_later() {
    let Some(_alone) = alone("groups beyond the limit") else { return };
    let wires = Wires::new();
    // Both wires are in one namespace of one workload, so a limit of one group per layer covers one of them.
    let sidecar = Sidecar::configured(
        "workloads: {enabled: false}\n\
         packets: {group: {by: [interface], limit: 1}}\n\
         signals: {latency: {layers: [transport]}, receive_wait: {enabled: false},\n\
         \x20 slow_packets: {enabled: false}, transmit: {enabled: false}}\n",
    );
    let attributes = |interface| [("undercurrent.network.layer", "transport"), (INTERFACE, interface)];
    // The kernel enables timestamps after a moment, and the group belongs to the first packet with a timestamp.
    let first = wait_for("a group, or a reason why there is none", patience(Duration::from_secs(5)), || {
        wires.send(0, 1);
        let line = sidecar.snapshot();
        (line.total(DURATION, &attributes("wire")) + lost(&line, "unknown_interface") > 0.0).then_some(line)
    });
    if lost(&first, "unknown_interface") > 0.0 {
        return eprintln!("this kernel tells no interface at the only layer that is served here");
    }
    wires.send(1, MESSAGES[1]);
    let second = sidecar.snapshot();
    assert_eq!(second.find(DURATION, &attributes("other")).count(), 0, "there is room for one");
    assert_eq!(between(&first, &second, DURATION, &attributes("wire")), [0.0, MESSAGES[1] as f64]);
    assert_eq!(lost(&second, "group_limit") - lost(&first, "group_limit"), MESSAGES[1] as f64);
    // No packets arrive on the first interface any more, until its index is reused by the second.
    let third = wait_for("the second to have a group", patience(Duration::from_secs(20)), || {
        wires.send(1, 1);
        Some(sidecar.snapshot()).filter(|line| line.total(DURATION, &attributes("other")) > 0.0)
    });
    assert_eq!(third.find(DURATION, &attributes("wire")).count(), 0, "its series is over");
    let start = |line: &Line, interface| line.find(DURATION, &attributes(interface)).map(|point| point.start).next();
    assert!(start(&third, "other") > start(&second, "wire"), "it counts from when it had the number");
    wires.send(1, MESSAGES[1]);
    let fourth = sidecar.snapshot();
    assert_eq!(between(&third, &fourth, DURATION, &attributes("other")), [MESSAGES[1] as f64, 0.0]);
    assert_eq!(lost(&fourth, "group_limit"), lost(&third, "group_limit"), "it has a group");
}
