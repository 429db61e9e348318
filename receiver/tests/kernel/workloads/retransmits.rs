//! Compares retransmissions after packet loss with the kernel's counters.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use super::{
    super::support::{
        cgroups::Group,
        counters::retransmitted,
        line::{Line, Point},
        namespace::Namespace,
        sidecar::Sidecar,
        surroundings::{alone, often, patience, stores_readers, virtual_machine, wait_for},
        truth::record,
        wire::{Version, Wire},
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const RETRANSMITS: &str = "undercurrent.tcp.retransmits";
/// More bytes than one packet, and fewer than a connection's initial window.
const BULK: usize = 12_000;

fn count(line: &Line, version: Version, whose: impl Fn(&Point) -> bool) -> f64 {
    let attributes = [("network.type", version.name())];
    line.find(RETRANSMITS, &attributes).filter(|point| whose(point)).map(Point::amount).sum()
}

/// Waits until TCP has retransmitted this number of segments.
fn again(namespace: &Namespace, segments: u64) {
    let counted = || (retransmitted(namespace) >= segments).then_some(());
    wait_for("TCP to send again", patience(Duration::from_secs(10)), counted);
}

/// Loses a server's reply several times.
fn answer(scene: &Scene, version: Version) {
    let group = scene.group();
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(version);
    let server = Worker::start(&group.own(), &wire.right);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let client = Client::connect(&wire, Transport::Tcp, address);
    let connection = server.accept(listener);
    server.answers(connection, 1, || client.ask(1));
    let before = sidecar.snapshot();
    let ends = || [&wire.right, &wire.left].map(retransmitted);
    let from = ends();
    client.say();
    wire.mislead();
    server.answers(connection, 1, || {
        again(&wire.right, from[0] + 3);
        wire.lead();
        client.hear();
    });
    let to = ends();
    let counted = [0, 1].map(|end| (to[end] - from[end]) as f64);
    let after = sidecar.snapshot();
    assert_whose(&[before, after], &group, version, counted);
}

/// Returns true if the counts agree. A busy host has occasionally run no program for an event without counting a
/// miss (docs/internals/kernels.md); guests are exact.
fn agree(seen: f64, counted: f64) -> bool {
    let most = if virtual_machine().is_some() { 0.0 } else { 0.3 };
    seen <= counted && seen >= counted * (1.0 - most)
}

/// Checks that the server's retransmissions belong to the server, and that those of the other end are present.
fn assert_whose(lines: &[Line; 2], group: &Group, version: Version, counted: [f64; 2]) {
    let grown = |whose: &dyn Fn(&Point) -> bool| {
        let [before, after] = lines.each_ref().map(|line| count(line, version, whose));
        after - before
    };
    let (own, all) = (grown(&|point| is(point, &group.path)), grown(&|_| true));
    let (server, both) = (counted[0], counted[0] + counted[1]);
    eprintln!("{version:?}: {own} of the server's, {all} of all; counted {server} and {both}");
    // Without socket storage, the workload of a socket is unknown on cgroup v1.
    assert!(agree(own, server) || !stores_readers() && own == 0.0, "{own} sent again, {server} by the kernel");
    assert!(agree(all, both) || all > both && virtual_machine().is_none(), "{all} sent again, {both} by the kernel");
}

#[test]
fn what_is_sent_again_is_the_senders() {
    everywhere("retransmits of workloads", |scene| {
        Version::ALL.into_iter().for_each(|version| answer(scene, version));
    });
}

/// Loses the second segment of a handshake, then sends several packets of data.
fn exchange(wire: &Wire) {
    let listener = wire.right.run(|| TcpListener::bind((wire.server(), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, patience(Duration::from_secs(10))).unwrap();
    // Afterwards both ends have neighbour entries for each other.
    wire.left.run(connect);
    listener.accept().unwrap();
    wire.mislead();
    let mut client = thread::scope(|scope| {
        let client = scope.spawn(|| wire.left.run(connect));
        [&wire.left, &wire.right].into_iter().for_each(|end| again(end, 1));
        wire.lead();
        client.join().unwrap()
    });
    let (mut server, _) = listener.accept().unwrap();
    wire.mislead();
    let from = retransmitted(&wire.right);
    server.write_all(&[0x55; BULK]).unwrap();
    again(&wire.right, from + 1);
    wire.lead();
    client.set_read_timeout(Some(patience(Duration::from_secs(20)))).unwrap();
    client.read_exact(&mut [0; BULK]).unwrap();
}

#[test]
fn every_segment_that_is_sent_again_counts() {
    let Some(_alone) = alone("retransmits") else { return };
    for version in Version::ALL {
        let sidecar = Sidecar::start(often());
        let wire = Wire::veth(version);
        let others = || retransmitted(&Namespace::current());
        let of_others = others();
        let before = sidecar.snapshot();
        exchange(&wire);
        let counted = (retransmitted(&wire.left) + retransmitted(&wire.right)) as f64;
        let after = sidecar.snapshot();
        let of_others = (others() - of_others) as f64;
        let seen = count(&after, version, |_| true) - count(&before, version, |_| true);
        record(RETRANSMITS, seen, counted..=counted + of_others);
    }
}
