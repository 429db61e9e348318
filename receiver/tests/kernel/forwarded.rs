//! Tests of the time that forwarded packets spend on this host before they reach their receiver's interface.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use super::{
    latency::{DURATION, served_by},
    support::{
        line::Line,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, skip},
        truth::record,
        wire::{Version, Wire},
    },
    transmit::acquaint,
    waits::between,
};

const PACKETS: usize = 20;
/// The time between two packets of a link with 1 Mbit/s, in seconds.
const GAP: f64 = 0.01;

/// Returns the payload of a packet with 1250 bytes: 10 000 bits.
const fn payload(version: Version) -> usize {
    match version {
        Version::Ipv4 => 1208,
        Version::Ipv6 => 1188,
    }
}

/// Returns true if the kernel and the hooks can tell how long a packet was on this host.
pub fn is_measured(line: &Line) -> bool {
    ["forward", "host"].iter().all(|hook| served_by(line, hook).is_some())
}

/// Returns the datagrams with a time on this host between two snapshots, and its sum in seconds.
fn on_host(lines: [&Line; 2], version: Version) -> (f64, f64) {
    between(lines, DURATION, &[("undercurrent.network.layer", "host"), ("network.type", version.name())])
}

/// Sends datagrams at once, and receives them. Returns the sum of their times from the sender to the receiver, in seconds.
fn exchange(wire: &Wire) -> f64 {
    let to = wire.right.run(|| UdpSocket::bind((wire.server(), 0)).unwrap());
    let from = wire.left.run(|| UdpSocket::bind((wire.client(), 0)).unwrap());
    to.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    let message = vec![0x55; payload(wire.version)];
    let send = || {
        assert_eq!(from.send_to(&message, to.local_addr().unwrap()).unwrap(), message.len());
        Instant::now()
    };
    let sent: Vec<Instant> = (0..PACKETS).map(|_| send()).collect();
    let received = sent.into_iter().map(|sent| {
        assert_eq!(to.recv(&mut vec![0; message.len()]).unwrap(), message.len());
        sent.elapsed().as_secs_f64()
    });
    received.sum()
}

/// A router holds packets as long as the rate of its link says. Their receivers see this time at the layer `host`, and packets that nobody
/// forwards have none.
#[test]
fn packets_that_wait_in_a_router_have_their_time_on_the_host() {
    let Some(_alone) = alone("packets that wait in a router") else { return };
    let sidecar = Sidecar::start_with(often(), &["--level", "normal"], &[]);
    let before = sidecar.snapshot();
    if !is_measured(&before) {
        return skip("time of forwarded packets: nothing sees packets that this host forwards");
    }
    for version in Version::ALL {
        let wire = Wire::routed(version);
        // The first packet finds the neighbours.
        exchange(&wire);
        wire.hold("qdisc add dev right root tbf rate 1mbit burst 1250 limit 1000000");
        let before = sidecar.snapshot();
        let took = exchange(&wire);
        let after = sidecar.snapshot();
        let (count, sum) = on_host([&before, &after], version);
        assert_eq!(count, PACKETS as f64, "{}", version.name());
        let least: f64 = (0..PACKETS).map(|nth| nth as f64 * GAP).sum();
        record(DURATION, sum, 0.98 * least..=took.max(least));
        let transport = [("undercurrent.network.layer", "transport"), ("network.type", version.name())];
        let (_, transport) = between([&before, &after], DURATION, &transport);
        assert!(transport < sum / 10.0, "{transport} s of {sum} s are after the last receive timestamp");

        let direct = Wire::veth(version);
        acquaint(&direct, ["wire", "wire"]);
        let before = sidecar.snapshot();
        exchange(&direct);
        assert_eq!(on_host([&before, &sidecar.snapshot()], version).0, 0.0, "nobody forwarded {}", version.name());
    }
}
