//! Tests of servers that listen with Multipath TCP, as servers in Go do. The kernel creates the sockets of their subflows.

use super::{
    super::{
        support::{
            counters::Received,
            surroundings::{skip, stores_readers},
            wire::{Version, Wire},
        },
        ways::multipath_socket,
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::Watch,
    worker::Worker,
};

const MESSAGES: usize = 20;

/// Checks that all packets of a server belong to its workload, before and after its first read.
fn multipath(scene: &Scene) {
    if let Err(error) = multipath_socket() {
        return skip(&format!("Multipath TCP: this kernel opens no such socket: {error}"));
    }
    if !stores_readers() {
        return skip("Multipath TCP: programs of this kernel have no socket storage");
    }
    let group = scene.group();
    let sidecar = scene.sidecar(&[]);
    for client in [Transport::Tcp, Transport::Multipath] {
        let wire = Wire::veth(Version::Ipv4);
        let watch = Watch::begin(&sidecar, &wire);
        let worker = Worker::start(&group.own(), &wire.right);
        let (listener, address) = worker.bind(Transport::Multipath, wire.server());
        let stream = Client::connect(&wire, client, address);
        stream.say();
        let connection = worker.accept(listener);
        worker.answers(connection, 1 + MESSAGES, || {
            stream.hear();
            stream.ask(MESSAGES);
        });
        let seen = watch.end();
        let layer = seen.arrival();
        let of = seen.of(&group, layer, Transport::Tcp);
        let expected = if layer == "transport" { Received::by(&wire.right).tcp as usize } else { 1 + MESSAGES };
        assert_eq!(of, expected as f64, "{layer} with {client:?} at the client");
    }
}

#[test]
fn packets_of_multipath_tcp_belong_to_the_server() {
    everywhere("Multipath TCP", multipath);
}
