//! Compares drops with the kernel's counters.

use std::{net::UdpSocket, process::Command};

use serde_json::Value;

use super::{
    super::support::{
        counters::dropped,
        line::{Line, Point},
        sidecar::Sidecar,
        surroundings::{alone, arguments, often, skip, stores_readers, virtual_machine},
        truth::{exactly, record},
        wire::{Version, Wire},
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::{is, is_nodes},
    worker::Worker,
};

const DROPS: &str = "undercurrent.network.drops";
const REASON: &str = "undercurrent.drop.reason";
const LAYER: &str = "undercurrent.drop.layer";
/// More datagrams than a socket's receive buffer holds.
const FLOOD: usize = 1000;
const FEW: usize = 30;

/// The snapshots before and after.
struct Seen([Line; 2]);

impl Seen {
    fn during(sidecar: &Sidecar, what: impl FnOnce()) -> Self {
        let before = sidecar.snapshot();
        what();
        Self([before, sidecar.snapshot()])
    }

    /// Returns the dropped packets between the snapshots in points that satisfy a condition.
    fn count(&self, (key, value): (&str, &str), whose: impl Fn(&Point) -> bool) -> f64 {
        let attributes = [(key, value)];
        let [before, after] = self
            .0
            .each_ref()
            .map(|line| line.find(DROPS, &attributes).filter(|point| whose(point)).map(Point::amount).sum::<f64>());
        after - before
    }

    /// Returns true if the kernel reports reasons of drops.
    fn explains(&self) -> bool {
        self.is_served("drop", "healthy")
    }

    fn is_served(&self, hook: &str, status: &str) -> bool {
        let attributes = [("undercurrent.hook", hook), ("undercurrent.hook.state", status)];
        self.0[1].total("undercurrent.hook.status", &attributes) > 0.0
    }
}

/// Asserts a count, to which other programs' drops may be added on a real machine.
fn assert_counted(what: &str, seen: f64, counted: f64) {
    eprintln!("{what}: {seen} seen, {counted} counted");
    assert!(counted > 0.0, "{what}: nothing was dropped");
    assert!(seen == counted || seen > counted && virtual_machine().is_none(), "{what}: {seen} seen, {counted} counted");
}

/// Sends datagrams to a port without a socket, then some to a foreign hardware address.
fn lose(wire: &Wire) {
    let right = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let left = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let [to_right, to_left] = [&right, &left].map(|socket| socket.local_addr().unwrap());
    right.send_to(b"hello", to_left).unwrap();
    left.recv(&mut [0; 5]).unwrap();
    wire.mislead();
    for _ in 0..FEW {
        right.send_to(b"lost", to_left).unwrap();
    }
    wire.lead();
    drop(right);
    for _ in 0..FEW {
        left.send_to(b"nobody", to_right).unwrap();
    }
}

#[test]
fn every_drop_counts_under_its_reason() {
    let Some(_alone) = alone("drops") else { return };
    let sidecar = Sidecar::start(often());
    for version in Version::ALL {
        let wire = Wire::veth(version);
        let seen = Seen::during(&sidecar, || lose(&wire));
        let [no_ports, _] = dropped(&wire.right, version);
        if seen.explains() {
            assert_counted("no_socket", seen.count((REASON, "no_socket"), |_| true), no_ports as f64);
            assert_counted("otherhost", seen.count((REASON, "otherhost"), |_| true), FEW as f64);
        } else {
            let least = no_ports as f64 + FEW as f64;
            let all = seen.count((REASON, "not_specified"), |_| true);
            eprintln!("for any reason: {all} seen, {least} counted");
            assert!(all >= least && no_ports > 0, "{all} seen, {least} counted");
        }
    }
}

/// Lets a server fill its receive buffer, and then send more than its interface takes.
fn overrun(scene: &Scene) {
    let group = scene.group();
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let server = Worker::start(&group.own(), &wire.right);
    let (socket, address) = server.bind(Transport::Udp, wire.server());
    let client = Client::connect(&wire, Transport::Udp, address);
    server.answers(socket, FEW, || client.ask(FEW));

    let seen = Seen::during(&sidecar, || (0..FLOOD).for_each(|_| client.say()));
    let [_, full] = dropped(&wire.right, Version::Ipv4);
    let kept = stores_readers();
    let own = |point: &Point| is(point, &group.path);
    let reason = if seen.explains() { "socket_rcvbuff" } else { "not_specified" };
    // The last tracepoint argument is the receiving socket.
    if kept && arguments("kfree_skb") > 3 {
        record(DROPS, seen.count((REASON, reason), own), exactly(full as f64));
        assert_eq!(seen.count((LAYER, "socket"), own), full as f64);
    } else {
        let nodes = seen.count((REASON, reason), is_nodes);
        eprintln!("{reason}, of the node: {nodes} seen, {full} counted");
        assert!(full > 0 && nodes >= full as f64, "{nodes} seen, {full} counted");
    }

    wire.right.tc("qdisc add dev wire root tbf rate 8kbit burst 2000 limit 2000");
    let seen = Seen::during(&sidecar, || server.answers(socket, FLOOD / 10, || ()));
    let dropped = dropped_by_qdisc(&wire);
    assert!(dropped > 0.0, "the qdisc took everything");
    if kept && seen.explains() {
        let [servers, kernels] = [seen.count((LAYER, "qdisc"), own), seen.count((LAYER, "qdisc"), is_nodes)];
        // The kernel's neighbour solicitations may be dropped too, and belong to no workload.
        assert_counted("qdisc, of the server and the kernel", servers + kernels, dropped);
        assert!(servers > 0.9 * dropped, "{servers} of {dropped} are the server's");
    }
}

/// Returns the packets that a netfilter rule dropped, from the rule's counter.
fn dropped_by_rule(wire: &Wire) -> f64 {
    let output = wire.right.run(|| Command::new("nft").args(["-j", "list", "ruleset"]).output().unwrap());
    let rules: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules = rules["nftables"].as_array().unwrap().iter().filter_map(|object| object["rule"]["expr"].as_array());
    rules.flatten().find_map(|part| part["counter"]["packets"].as_f64()).expect("the rule has a counter")
}

#[test]
fn netfilters_drops_are_those_that_its_rule_counts() {
    let Some(_alone) = alone("netfilter's drops") else { return };
    const PACKETS: usize = 3080;
    const RULES: &str =
        "table ip filter { chain input { type filter hook input priority 0; udp dport 9 counter drop; }; }";
    let wire = Wire::veth(Version::Ipv4);
    let nft = wire.right.run(|| Command::new("nft").arg(RULES).output());
    if !nft.as_ref().is_ok_and(|output| output.status.success()) {
        return skip(&format!("netfilter's drops: nftables does not work here: {nft:?}"));
    }
    let sidecar = Sidecar::start(often());
    let sender = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    let seen = Seen::during(&sidecar, || {
        (0..PACKETS).for_each(|_| assert_eq!(sender.send_to(b"drop", (wire.server(), 9)).unwrap(), 4));
    });
    let reason = if seen.explains() { "netfilter_drop" } else { "not_specified" };
    let counted = dropped_by_rule(&wire);
    assert!(counted >= 0.9 * PACKETS as f64, "the rule counted {counted} of {PACKETS}");
    record(DROPS, seen.count((REASON, reason), |_| true), exactly(counted));
}

/// Returns the packets that the right end's qdisc dropped, from its statistics.
fn dropped_by_qdisc(wire: &Wire) -> f64 {
    let output = wire.right.run(|| Command::new("tc").args(["-s", "-j", "qdisc", "show", "dev", "wire"]).output());
    let qdiscs: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    qdiscs[0]["drops"].as_f64().unwrap()
}

#[test]
fn drops_are_whose_socket_the_kernel_knew() {
    everywhere("drops of workloads", overrun);
}
