//! Compares transactions of TCP connections with what both ends did.

use std::time::Duration;

use super::{
    super::{
        latency::served_by,
        support::{
            cgroups::Group,
            line::{Line, Value},
            surroundings::{patience, skip, wait_for},
            truth::{exactly, record},
            wire::{Version, Wire},
        },
    },
    message::Turns,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const TRANSACTION: &str = "undercurrent.tcp.transaction.duration";
const CONNECTION: &str = "undercurrent.tcp.connection.duration";
const CONNECTIONS: &str = "undercurrent.tcp.connections";
const IO: &str = "undercurrent.tcp.io";
const ROLE: &str = "undercurrent.role";
const NANO: f64 = 1e-9;

/// Requests of the connection that stays open.
const KEPT: usize = 20;
/// Connections of one request.
const SINGLE: usize = 10;

/// A request of two segments and a response of three, each after a pause.
const CLIENT: Turns = Turns {
    count: KEPT,
    asks: true,
    reads: 3_000,
    delay: Duration::ZERO,
    pieces: 2,
    writes: 100,
    pause: Duration::from_millis(3),
};
const SERVER: Turns = Turns {
    count: KEPT,
    asks: false,
    reads: 200,
    delay: Duration::from_millis(5),
    pieces: 3,
    writes: 1_000,
    pause: Duration::from_millis(2),
};

/// Returns the number and the sum of a group's durations.
fn durations(line: &Line, metric: &str, role: &str, group: &Group) -> (f64, f64) {
    let attributes = [(ROLE, role)];
    let points = line.find(metric, &attributes).filter(|point| is(point, &group.path));
    points.fold((0.0, 0.0), |(count, sum), point| match &point.value {
        Value::Histogram(histogram) => (count + histogram.count as f64, sum + histogram.sum.unwrap()),
        _ => (count, sum),
    })
}

fn counted(line: &Line, metric: &str, attributes: &[(&str, &str)], group: &Group) -> f64 {
    line.find(metric, attributes).filter(|point| is(point, &group.path)).map(|point| point.amount()).sum()
}

/// Runs all turns, and returns the times of the clients and of the servers in nanoseconds.
fn converse(wire: &Wire, [serving, asking]: [&Group; 2]) -> [Vec<u64>; 2] {
    let server = Worker::start(&serving.own(), &wire.right);
    let client = Worker::start(&asking.own(), &wire.left);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    // A raw socket gets every segment too, and has no connection.
    server.overhear(wire.server());
    let mut times = [Vec::new(), Vec::new()];
    for connection in 0..=SINGLE {
        let count = if connection == 0 { KEPT } else { 1 };
        let (asks, answers) = (client.connect(address).0, server.accept(listener));
        let turns = [CLIENT, SERVER].map(|turns| Turns { count, ..turns });
        let of_both = client.converse((asks, turns[0]), &server, (answers, turns[1]));
        times.iter_mut().zip(of_both).for_each(|(times, more)| times.extend(more));
        // Either end closes first.
        let ends = [(&client, asks), (&server, answers)];
        let first = connection % 2;
        [ends[first], ends[1 - first]].iter().for_each(|(worker, socket)| worker.close(*socket));
    }
    times
}

fn turns(scene: &Scene, version: Version) {
    let [serving, asking] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    if served_by(&sidecar.snapshot(), "tcp_segment").is_none() {
        return skip("transactions: programs cannot read the socket of a packet here");
    }
    let wire = Wire::veth(version);
    let times = converse(&wire, [&serving, &asking]);
    let line = sidecar.snapshot();
    let requests = (KEPT + SINGLE) as f64;
    let connections = (1 + SINGLE) as f64;
    let [asked, answered] = times.map(|times| times.iter().sum::<u64>() as f64 * NANO);
    // The pause within the request counts for the client alone, and those within the response too.
    let pauses = requests * (CLIENT.pause + 2 * SERVER.pause).as_secs_f64();
    for (role, group, least) in [("server", &serving, answered), ("client", &asking, answered + pauses)] {
        let (count, sum) = durations(&line, TRANSACTION, role, group);
        eprintln!("{role}: {count} of {requests} transactions, {sum} s; at least {least} s, at most {asked} s");
        assert_eq!(count, requests, "{role}");
        let most = if role == "server" { asked - pauses } else { asked };
        record(TRANSACTION, sum, least..=most);
        let (count, _) = durations(&line, CONNECTION, role, group);
        record(CONNECTION, count, exactly(connections));
        let established = [("undercurrent.tcp.outcome", "established"), (ROLE, role)];
        record(CONNECTIONS, counted(&line, CONNECTIONS, &established, group), exactly(connections));
    }
    let bytes = [(CLIENT.pieces * CLIENT.writes) as f64, (SERVER.pieces * SERVER.writes) as f64];
    for (group, [received, sent]) in [(&serving, bytes), (&asking, [bytes[1], bytes[0]])] {
        for (direction, bytes) in [("receive", received), ("transmit", sent)] {
            let counted = counted(&line, IO, &[("network.io.direction", direction)], group);
            record(IO, counted, exactly(requests * bytes));
        }
    }
}

#[test]
fn transactions_are_those_of_both_ends() {
    everywhere("transactions", |scene| Version::ALL.into_iter().for_each(|version| turns(scene, version)));
}

/// A connection without turns: data one way, and an end that the other resets.
fn without_turns(scene: &Scene) {
    const SENT: Turns = Turns { count: 1, asks: true, reads: 0, pieces: 10, pause: Duration::from_millis(1), ..CLIENT };
    const READ: Turns = Turns { count: 1, asks: false, reads: 1_000, pieces: 0, delay: Duration::ZERO, ..SERVER };
    let [serving, asking] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    if served_by(&sidecar.snapshot(), "tcp_segment").is_none() {
        return skip("connections without turns: programs cannot read the socket of a packet here");
    }
    let wire = Wire::veth(Version::Ipv4);
    let server = Worker::start(&serving.own(), &wire.right);
    let client = Worker::start(&asking.own(), &wire.left);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let (asks, answers) = (client.connect(address).0, server.accept(listener));
    client.converse((asks, SENT), &server, (answers, READ));
    // A server that closes before it has read everything resets the connection.
    client.converse((asks, SENT), &server, (answers, Turns { reads: 1, ..READ }));
    server.close(answers);
    server.close(listener);
    client.refused(address);
    let line = sidecar.snapshot();
    for (role, group) in [("server", &serving), ("client", &asking)] {
        assert_eq!(durations(&line, TRANSACTION, role, group).0, 0.0, "{role}: nothing was answered");
    }
    let outcome =
        |outcome| counted(&line, CONNECTIONS, &[("undercurrent.tcp.outcome", outcome), (ROLE, "client")], &asking);
    assert_eq!(["established", "reset", "refused"].map(outcome), [1.0, 1.0, 1.0]);
    assert_eq!(counted(&line, IO, &[("network.io.direction", "transmit")], &asking), 2_000.0);
}

#[test]
fn streams_have_no_transactions_and_resets_and_refusals_are_counted() {
    everywhere("connections without turns", without_turns);
}

/// A response after the end of the client's direction, and a connection that is older than the sidecar.
fn half_closed_and_older(scene: &Scene) {
    const ASK: Turns = Turns { count: 1, asks: true, reads: 0, pieces: 1, ..CLIENT };
    const HEAR: Turns = Turns { count: 1, asks: false, reads: 1_000, delay: Duration::ZERO, pieces: 0, ..CLIENT };
    const GET: Turns = Turns { count: 1, asks: false, reads: 100, delay: Duration::ZERO, pieces: 0, ..SERVER };
    const ANSWER: Turns = Turns { count: 1, asks: true, reads: 0, pieces: 1, ..SERVER };
    let [serving, asking] = [scene.group(), scene.group()];
    let wire = Wire::veth(Version::Ipv4);
    let server = Worker::start(&serving.own(), &wire.right);
    let client = Worker::start(&asking.own(), &wire.left);
    let turn = |asks, answers, between: &dyn Fn()| {
        client.converse((asks, ASK), &server, (answers, GET));
        between();
        server.converse((answers, ANSWER), &client, (asks, HEAR));
    };
    // Of a connection that is older than the sidecar, the end with the lower port counts as server.
    let older = wait_for("a connection whose server has the lower port", patience(Duration::from_secs(20)), || {
        let (listener, address) = server.bind(Transport::Tcp, wire.server());
        let (asks, own) = client.connect(address);
        (address.port() < own.port()).then(|| (asks, server.accept(listener)))
    });
    turn(older.0, older.1, &|| {});
    let sidecar = scene.sidecar(&[]);
    if served_by(&sidecar.snapshot(), "tcp_segment").is_none() {
        return skip("half-closed connections: programs cannot read the socket of a packet here");
    }
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let half = (client.connect(address).0, server.accept(listener));
    turn(half.0, half.1, &|| client.finish(half.0));
    (0..2).for_each(|_| turn(older.0, older.1, &|| {}));
    for (asks, answers) in [half, older] {
        server.close(answers);
        client.close(asks);
    }
    let line = sidecar.snapshot();
    let count = |role, group| durations(&line, TRANSACTION, role, group).0;
    let established = |group| counted(&line, CONNECTIONS, &[("undercurrent.tcp.outcome", "established")], group);
    assert_eq!([established(&serving), established(&asking)], [1.0, 1.0], "the older connection has no handshake");
    // The client's first request was sent before any segment showed the connection.
    assert_eq!([count("server", &serving), count("client", &asking)], [3.0, 2.0]);
}

#[test]
fn half_closed_connections_have_turns_and_older_ones_no_handshake() {
    everywhere("half-closed connections", half_closed_and_older);
}

/// One turn in four is measured.
fn sampled(scene: &Scene) {
    const WEIGHT: f64 = 4.0;
    // No multiple of the weight, so that a sidecar that measures all turns fails the test.
    const COUNT: usize = 402;
    let [serving, asking] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&["--sampling", "1/4"]);
    if served_by(&sidecar.snapshot(), "tcp_segment").is_none() {
        return skip("transactions in a sample: programs cannot read the socket of a packet here");
    }
    let wire = Wire::veth(Version::Ipv4);
    let server = Worker::start(&serving.own(), &wire.right);
    let client = Worker::start(&asking.own(), &wire.left);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let (asks, answers) = (client.connect(address).0, server.accept(listener));
    let asking_turns = Turns { count: COUNT, pieces: 1, pause: Duration::ZERO, ..CLIENT };
    let serving_turns = Turns { count: COUNT, reads: 100, delay: Duration::from_millis(1), ..SERVER };
    let serving_turns = Turns { pieces: 1, writes: 3_000, pause: Duration::ZERO, ..serving_turns };
    let [asked, answered] = client.converse((asks, asking_turns), &server, (answers, serving_turns));
    client.close(asks);
    server.close(answers);
    let line = sidecar.snapshot();
    for (role, group, times) in [("server", &serving, answered), ("client", &asking, asked)] {
        let (count, sum) = durations(&line, TRANSACTION, role, group);
        // The last group of four turns is incomplete.
        assert!((count - COUNT as f64).abs() <= WEIGHT, "{role}: {count} of {COUNT} transactions");
        assert!(count % WEIGHT == 0.0, "{role}: {count} is no multiple of the weight, so all turns were measured");
        let own = times.iter().sum::<u64>() as f64 * NANO / COUNT as f64;
        eprintln!("{role}: {count} of {COUNT} transactions; {} s each, by the {role} {own} s", sum / count);
        assert!((sum / count / own - 1.0).abs() < 0.5, "{role}: the measured turns are like the others");
    }
    for (direction, bytes) in [("receive", 100), ("transmit", 3_000)] {
        let counted = counted(&line, IO, &[("network.io.direction", direction)], &serving);
        assert_eq!(counted, (COUNT * bytes) as f64, "{direction}");
    }
}

#[test]
fn a_sample_of_turns_counts_as_all_of_them() {
    everywhere("transactions in a sample", sampled);
}

/// A connection and an attempt whose other end does not answer.
fn timed_out(scene: &Scene) {
    const LIMIT: Duration = Duration::from_secs(1);
    let [serving, asking] = [scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let first = sidecar.snapshot();
    if served_by(&first, "tcp_segment").is_none() || served_by(&first, "tcp_failure").is_none() {
        return skip("connections that time out: programs cannot read the socket of a packet here");
    }
    let wire = Wire::veth(Version::Ipv4);
    let server = Worker::start(&serving.own(), &wire.right);
    let client = Worker::start(&asking.own(), &wire.left);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let (asks, answers) = (client.connect(address).0, server.accept(listener));
    // The owner of an accepted connection is known from its first read.
    let turns = [CLIENT, SERVER].map(|turns| Turns { count: 1, ..turns });
    client.converse((asks, turns[0]), &server, (answers, turns[1]));
    // The client gets no packet from here on.
    wire.mislead();
    server.abandoned(answers, LIMIT);
    client.unanswered(address, LIMIT);
    let line = sidecar.snapshot();
    for (role, group) in [("server", &serving), ("client", &asking)] {
        let outcome = [("undercurrent.tcp.outcome", "timed_out"), (ROLE, role)];
        assert_eq!(counted(&line, CONNECTIONS, &outcome, group), 1.0, "{role}");
        let ended = if role == "server" { 1.0 } else { 0.0 };
        assert_eq!(durations(&line, CONNECTION, role, group).0, ended, "{role}");
    }
}

#[test]
fn connections_that_time_out_are_counted() {
    everywhere("connections that time out", timed_out);
}
