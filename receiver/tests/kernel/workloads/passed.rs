//! Tests of sockets that one process creates and another process reads.

use std::{fs, process::Command, time::Duration};

use super::{
    super::{
        latency::DURATION,
        support::{
            cgroups::Group,
            counters::Received,
            surroundings::{patience, skip, stores_readers, virtual_machine, wait_for},
            truth::{exactly, record},
            wire::{Version, Wire},
        },
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::{Seen, Watch},
    worker::Worker,
};

/// The number of messages that arrive before the new owner reads.
const BEFORE: usize = 5;
/// The number of messages after the first read.
const AFTER: usize = 40;
/// Segments of a connection before its first data: SYN, and the final ACK of the handshake.
const HANDSHAKE: usize = 2;

/// Checks the counts of workloads at arrival, with the socket's creator first. On kernels without socket storage,
/// a socket stays attributed to its creator, if the kernel knows the creator.
pub fn assert_arrived(seen: &Seen, transport: Transport, expected: &[(&Group, usize)]) {
    let (layer, kept) = (seen.arrival(), stores_readers());
    let all = expected.iter().map(|(_, packets)| packets).sum::<usize>();
    for (n, (group, packets)) in expected.iter().enumerate() {
        let of = seen.of(group, layer, transport);
        eprintln!("{layer} {}: {of} of {}", transport.name(), group.path.display());
        let right = match (kept, n) {
            (true, _) => of == *packets as f64,
            (false, 0) => of == all as f64 || of == 0.0,
            (false, _) => of == 0.0,
        };
        assert!(right, "{layer} {} of {}: {of}, not {packets} of {all}", transport.name(), group.path.display());
    }
}

/// Checks the counts of workloads at their reads. The tracepoint misattributes the first read of each of `changed`
/// sockets with a new owner, and it does not see small datagrams.
pub fn assert_read(seen: &Seen, transport: Transport, expected: &[(&Group, usize)], changes: usize) {
    let traced = seen.served("socket_read").as_deref() == Some("tracepoint");
    if traced && transport == Transport::Udp {
        return;
    }
    let of = |group: &Group| seen.of(group, "socket_read", transport);
    let sum: f64 = expected.iter().map(|(group, _)| of(group)).sum();
    if !stores_readers() && sum == 0.0 {
        // On cgroup v1, these kernels do not provide the cgroup of a task either.
        return;
    }
    assert_eq!(sum, expected.iter().map(|(_, reads)| reads).sum::<usize>() as f64, "reads of all");
    for (group, reads) in expected {
        eprintln!("socket_read {}: {} of {}", transport.name(), of(group), group.path.display());
        let off = (of(group) - *reads as f64).abs();
        assert!(off <= if traced { changes as f64 } else { 0.0 }, "{} reads, not {reads}", of(group));
    }
}

/// Checks the TCP segments at arrival: with acknowledgements at the transport layer, and without them in the
/// queue. The handshakes before the first read belong to the first workload.
pub fn assert_segments(
    seen: &Seen,
    wire: &Wire,
    connections: usize,
    first: (&Group, usize),
    others: &[(&Group, usize)],
) {
    if seen.arrival() != "transport" {
        let all: Vec<_> = [first].into_iter().chain(others.iter().copied()).collect();
        return assert_arrived(seen, Transport::Tcp, &all);
    }
    let of = |group: &Group| seen.of(group, "transport", Transport::Tcp);
    let (group, messages) = first;
    eprintln!("transport tcp: {} of {}", of(group), group.path.display());
    assert_eq!(of(group), (connections * HANDSHAKE + messages) as f64, "segments of the first");
    for (group, messages) in others {
        eprintln!("transport tcp: {} of {}", of(group), group.path.display());
        assert!(of(group) >= *messages as f64, "{} segments for {messages} messages", of(group));
    }
    let sum = of(group) + others.iter().map(|(group, _)| of(group)).sum::<f64>();
    assert_eq!(sum, Received::by(&wire.right).tcp as f64, "segments of all");
}

fn socket_activation(scene: &Scene) {
    let [maker, reader] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let mut worker = Worker::start(&maker.own(), &wire.right);
    let (udp, udp_address) = worker.bind(Transport::Udp, wire.server());
    let (tcp, tcp_address) = worker.bind(Transport::Tcp, wire.server());

    let datagrams = Client::connect(&wire, Transport::Udp, udp_address);
    (0..BEFORE).for_each(|_| datagrams.say());
    let stream = Client::connect(&wire, Transport::Tcp, tcp_address);
    stream.say();
    worker.activate();
    worker.join(&reader.own());
    worker.answers(udp, BEFORE + AFTER, || {
        (0..BEFORE).for_each(|_| datagrams.hear());
        datagrams.ask(AFTER);
    });
    let connection = worker.accept(tcp);
    worker.answers(connection, 1 + AFTER, || {
        stream.hear();
        stream.ask(AFTER);
    });

    let seen = watch.end();
    assert_arrived(&seen, Transport::Udp, &[(&maker, BEFORE), (&reader, AFTER)]);
    assert_read(&seen, Transport::Udp, &[(&maker, 0), (&reader, BEFORE + AFTER)], 1);
    assert_segments(&seen, &wire, 1, (&maker, 1), &[(&reader, AFTER)]);
    assert_read(&seen, Transport::Tcp, &[(&maker, 0), (&reader, 1 + AFTER)], 1);
}

#[test]
fn activated_sockets_belong_to_their_makers_until_they_are_read() {
    everywhere("socket activation", socket_activation);
}

/// Checks sockets of systemd's tool, which starts the reader at the first packet.
fn systemd_activation(scene: &Scene) {
    const PORT: u16 = 4000;
    let [maker, reader] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let address = (wire.server(), PORT).into();
    let command = |asker: &str| {
        let listen = format!("--listen={address}");
        // The variable that scales timeouts must be passed on, if it is set.
        let passed = virtual_machine().map(|name| format!("--setenv=UNDERCURRENT_VM={name}"));
        let fixed =
            ["systemd-socket-activate".to_owned(), "--datagram".to_owned(), listen, format!("--setenv={asker}")];
        fixed.into_iter().chain(passed).collect()
    };
    let mut worker = Worker::start_by(command, &maker.own(), &wire.right, &[]);
    let sockets = || wire.right.run(|| fs::read_to_string("/proc/thread-self/net/udp").unwrap());
    let bound = || sockets().contains(&format!(":{PORT:04X} ")).then_some(());
    wait_for("systemd-socket-activate to listen", patience(Duration::from_secs(5)), bound);
    let client = Client::connect(&wire, Transport::Udp, address);
    client.say();
    worker.arrive();
    worker.join(&reader.own());
    worker.answers(0, 1 + AFTER, || {
        client.hear();
        client.ask(AFTER);
    });
    let seen = watch.end();
    assert_arrived(&seen, Transport::Udp, &[(&maker, 1), (&reader, AFTER)]);
    assert_read(&seen, Transport::Udp, &[(&maker, 0), (&reader, 1 + AFTER)], 1);
}

#[test]
fn systemds_sockets_belong_to_their_makers_until_they_are_read() {
    if Command::new("systemd-socket-activate").arg("--version").output().is_err() {
        return skip("systemd's socket activation: systemd-socket-activate is not installed");
    }
    everywhere("systemd's socket activation", systemd_activation);
}

fn change_of_hands(scene: &Scene) {
    let [first, second] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let [one, other] = [&first, &second].map(|group| Worker::start(&group.own(), &wire.right));
    // The clients stay open, so that no FIN is queued.
    let _clients = [Transport::Udp, Transport::Tcp].map(|transport| {
        let (mut socket, address) = one.bind(transport, wire.server());
        let client = Client::connect(&wire, transport, address);
        if transport == Transport::Tcp {
            socket = one.accept(socket);
        }
        one.answers(socket, BEFORE, || client.ask(BEFORE));
        let passed = one.pass(socket, &other);
        other.answers(passed, AFTER, || client.ask(AFTER));
        client
    });

    let seen = watch.end();
    // The first message for the second workload arrived before its first read.
    assert_arrived(&seen, Transport::Udp, &[(&first, BEFORE + 1), (&second, AFTER - 1)]);
    assert_read(&seen, Transport::Udp, &[(&first, BEFORE), (&second, AFTER)], 1);
    if seen.arrival() == "socket_enqueued" {
        assert_arrived(&seen, Transport::Tcp, &[(&first, BEFORE + 1), (&second, AFTER - 1)]);
    } else {
        let [first, second] = [&first, &second].map(|group| seen.of(group, "transport", Transport::Tcp));
        assert_eq!(first + second, Received::by(&wire.right).tcp as f64);
        assert!(first >= (HANDSHAKE + BEFORE + 1) as f64 && second >= (AFTER - 1) as f64, "{first} and {second}");
    }
    assert_read(&seen, Transport::Tcp, &[(&first, BEFORE), (&second, AFTER)], 1);
}

#[test]
fn passed_sockets_change_hands_with_the_first_read() {
    everywhere("passed descriptors", change_of_hands);
}

/// Checks a socket that its creator never reads.
fn made_and_read(scene: &Scene) {
    const DATAGRAMS: usize = 800;
    let [maker, reader] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let [one, other] = [&maker, &reader].map(|group| Worker::start(&group.own(), &wire.right));
    let (socket, address) = one.bind(Transport::Udp, wire.server());
    let client = Client::connect(&wire, Transport::Udp, address);
    let passed = one.pass(socket, &other);
    other.answers(passed, DATAGRAMS, || client.ask(DATAGRAMS));
    let seen = watch.end();
    if stores_readers() {
        // The first datagram arrived before the first read.
        let [first, others] = [&maker, &reader].map(|group| seen.of(group, seen.arrival(), Transport::Udp));
        record(DURATION, first, exactly(1.0));
        record(DURATION, others, exactly(DATAGRAMS as f64 - 1.0));
    }
}

#[test]
fn all_but_the_first_datagram_belong_to_the_reader() {
    everywhere("a socket that another reads", made_and_read);
}
