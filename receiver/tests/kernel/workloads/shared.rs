//! Tests of sockets with several readers, and of sockets that a listening socket creates.

use super::{
    super::support::wire::{Version, Wire},
    client::Client,
    passed::{assert_arrived, assert_read, assert_segments},
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::Watch,
    worker::Worker,
};

/// The number of messages on the first connection; each later connection has one more.
const MESSAGES: usize = 10;
const CONNECTIONS: usize = 4;
/// The number of messages that the readers take in turns.
const TURNS: usize = 20;

/// Checks workers that share their parent's sockets: a connection belongs to the worker that reads it, and a
/// datagram to the reader of the previous datagram.
fn prefork(scene: &Scene) {
    let groups = [scene.group(), scene.group(), scene.group()];
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let [parent, left, right] = groups.each_ref().map(|group| Worker::start(&group.own(), &wire.right));
    let (listener, address) = parent.bind(Transport::Tcp, wire.server());
    let workers = [&left, &right].map(|worker| (worker, parent.pass(listener, worker)));
    let mut messages = [0, 0];
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let client = Client::connect(&wire, Transport::Tcp, address);
            let (worker, listener) = workers[n % 2];
            let connection = worker.accept(listener);
            worker.answers(connection, MESSAGES + n, || client.ask(MESSAGES + n));
            messages[n % 2] += MESSAGES + n;
            client
        })
        .collect();

    let (socket, address) = parent.bind(Transport::Udp, wire.server());
    let workers = [&left, &right].map(|worker| (worker, parent.pass(socket, worker)));
    let client = Client::connect(&wire, Transport::Udp, address);
    for turn in 0..TURNS {
        let (worker, socket) = workers[turn % 2];
        // A waiting reader may be faster than the program at the exit of the enqueuing function on another CPU.
        client.say();
        worker.answers(socket, 1, || client.hear());
    }

    let seen = watch.end();
    let [parent, left, right] = &groups;
    let of_left = (left, messages[0] - CONNECTIONS / 2);
    let of_right = (right, messages[1] - CONNECTIONS / 2);
    assert_segments(&seen, &wire, CONNECTIONS, (parent, CONNECTIONS), &[of_left, of_right]);
    assert_read(&seen, Transport::Tcp, &[(parent, 0), (left, messages[0]), (right, messages[1])], CONNECTIONS);
    // The right worker read the last one, and nothing arrived after it.
    assert_arrived(&seen, Transport::Udp, &[(parent, 1), (left, TURNS / 2), (right, TURNS / 2 - 1)]);
    assert_read(&seen, Transport::Udp, &[(parent, 0), (left, TURNS / 2), (right, TURNS / 2)], TURNS);
    drop(connections);
}

#[test]
fn shared_sockets_belong_to_their_last_reader() {
    everywhere("prefork servers", prefork);
}

/// Checks that an accepted socket belongs to the listening socket's owner before its first read.
fn begotten(scene: &Scene) {
    let group = scene.group();
    let sidecar = scene.sidecar(&[]);
    let wire = Wire::veth(Version::Ipv4);
    let watch = Watch::begin(&sidecar, &wire);
    let server = Worker::start(&group.own(), &wire.right);
    let (listener, address) = server.bind(Transport::Tcp, wire.server());
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(&wire, Transport::Tcp, address)).collect();
    clients.iter().for_each(Client::say);
    let unread = watch.end();
    assert_segments(&unread, &wire, CONNECTIONS, (&group, CONNECTIONS), &[]);

    let watch = Watch::begin(&sidecar, &wire);
    for client in &clients {
        let connection = server.accept(listener);
        server.answers(connection, 1 + MESSAGES, || {
            client.hear();
            client.ask(MESSAGES);
        });
    }
    let seen = watch.end();
    assert_read(&seen, Transport::Tcp, &[(&group, CONNECTIONS * (1 + MESSAGES))], 0);
    if seen.arrival() == "socket_enqueued" {
        assert_arrived(&seen, Transport::Tcp, &[(&group, CONNECTIONS * MESSAGES)]);
    }
}

#[test]
fn a_servers_connections_are_its_own_before_it_reads() {
    everywhere("a server's connections", begotten);
}
