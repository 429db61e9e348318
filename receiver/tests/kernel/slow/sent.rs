//! The time that a datagram takes from UDP of a sender on this node to its receive timestamp.

use std::{net::UdpSocket, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{super::latency::served_by, *};

/// Rate and burst of the link, in bytes per second and bytes. A second datagram waits for about 90 ms.
const LINK: &str = "qdisc add dev lo root tbf rate 3200kbit burst 45000 limit 1000000";
/// The least wait of the second datagram.
const WAIT: Duration = Duration::from_millis(50);
/// The hook at UDP's output may miss a datagram.
const ATTEMPTS: usize = 3;

/// A late read, and the time at which its datagram had arrived.
struct Waited {
    slow: Slow,
    arrived: u64,
}

/// Sends a datagram that waits in the qdisc, and reads it late.
fn wait(client: &UdpSocket, server: &UdpSocket) -> Waited {
    let mut buffer = vec![0; LONG];
    // Fills the burst.
    client.send(&buffer).unwrap();
    let before = wall_clock();
    client.send(&buffer).unwrap();
    let sent = [before, wall_clock()];
    server.recv(&mut buffer).unwrap();
    let limit = Timespec::try_from(patience(Duration::from_secs(5))).unwrap();
    assert_eq!(poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&limit)).unwrap(), 1, "no datagram came");
    let arrived = wall_clock();
    late();
    let before = wall_clock();
    assert_eq!(server.recv(&mut buffer).unwrap(), LONG);
    let [local, peer] = [server.local_addr().unwrap(), client.local_addr().unwrap()];
    Waited { slow: Slow { sent, read: [before, wall_clock()], local, peer }, arrived }
}

fn waits_at_the_sender(version: Version) {
    let settings = settings("").replace("transmit: {enabled: false}", "transmit: {enabled: true}");
    let sidecar = Sidecar::configured(&settings);
    if served_by(&sidecar.snapshot(), "socket_read").is_none() {
        return skip("slow packets: nothing serves socket_read");
    }
    let wire = Wire::loopback(version);
    wire.left.tc(LINK);
    let (client, server) = sockets(&wire);
    let known = (0..ATTEMPTS).find_map(|_| {
        let Waited { slow, arrived } = wait(&client, &server);
        let (span, steps) = traced(&sidecar, &slow);
        Some((slow, arrived, span, steps.into_iter().find(|step| step.name == SEND)?))
    });
    let (slow, arrived, span, step) = known.expect("a step at the sender");
    let within = slow.sent[0] - PRECISION..=slow.sent[1] + PRECISION;
    assert!(within.contains(&step.start), "{step:?} does not begin within {:?}", slow.sent);
    assert_eq!((step.start, &step.parent), (span.start, &span.id));
    assert!(step.end <= arrived + PRECISION, "{step:?} ends after the arrival at {arrived}");
    assert!(Duration::from_nanos(step.end - step.start) >= WAIT, "{step:?}");
}

#[test]
fn datagrams_have_their_wait_at_the_sender_over_ipv4() {
    let Some(_alone) = alone("waits of datagrams at their sender over IPv4") else { return };
    waits_at_the_sender(Version::Ipv4);
}

#[test]
fn datagrams_have_their_wait_at_the_sender_over_ipv6() {
    let Some(_alone) = alone("waits of datagrams at their sender over IPv6") else { return };
    waits_at_the_sender(Version::Ipv6);
}
