//! The step of a forwarded packet on this host, before it reaches its receiver's interface.

use super::{super::forwarded::is_measured, *};

/// Reads a segment and a datagram late that a router forwarded.
fn late_after_a_router(version: Version) {
    let sidecar = Sidecar::configured(&settings(""));
    let line = sidecar.snapshot();
    if !is_measured(&line) || served_by(&line, "socket_read").is_none() {
        return skip("steps of forwarded packets: nothing sees packets that this host forwards");
    }
    let wire = Wire::routed(version);
    let of_udp: Vec<_> = ["host"].into_iter().chain(layers(&sidecar)).collect();
    // Segments from this node have no receive timestamp before the transport protocol.
    let of_tcp: Vec<_> = of_udp.iter().copied().filter(|layer| *layer != "ip").collect();
    let (slow, span, steps) = late_segment(&sidecar, &wire);
    slow.assert(&span, &steps, &of_tcp);
    if sees_datagrams(&line, "socket_read") {
        let (slow, span, steps) = late_datagram(&sidecar, &wire, SMALL);
        slow.assert(&span, &steps, &of_udp);
    }
}

#[test]
fn forwarded_packets_have_a_step_on_the_host_over_ipv4() {
    let Some(_alone) = alone("steps of forwarded packets over IPv4") else { return };
    late_after_a_router(Version::Ipv4);
}

#[test]
fn forwarded_packets_have_a_step_on_the_host_over_ipv6() {
    let Some(_alone) = alone("steps of forwarded packets over IPv6") else { return };
    late_after_a_router(Version::Ipv6);
}
