//! Tests that only workloads selected by the filter are measured.

use super::{
    super::{
        latency::{DURATION, served_by},
        support::{
            line::Point,
            sidecar::file,
            surroundings::{skipped, stores_readers},
            wire::{Version, Wire},
        },
        transmit,
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const MESSAGES: usize = 30;

fn one_of_two(scene: &Scene) {
    let groups = [scene.group(), scene.group()];
    let wire = Wire::veth(Version::Ipv4);
    wire.right.queue("wire");
    let filter = format!("cgroups: [{}, /undercurrent-none, 1]", groups[0].path.display());
    let file = file(&format!("packets: {{filter: {{{filter}}}}}\n"));
    let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
    let servers = groups.each_ref().map(|group| Worker::start(&group.own(), &wire.right));
    let exchange = || {
        for server in &servers {
            let (socket, address) = server.bind(Transport::Udp, wire.server());
            let client = Client::connect(&wire, Transport::Udp, address);
            server.answers(socket, MESSAGES, || client.ask(MESSAGES));
        }
    };
    // The first layer that knows the workload of a packet.
    let layer = served_by(&sidecar.snapshot(), "socket_enqueued").map_or("transport", |_| "socket_enqueued");
    let attributes = [("undercurrent.network.layer", layer), ("network.transport", "udp"), ("network.type", "ipv4")];
    let [before, after] = {
        let before = sidecar.snapshot();
        exchange();
        [before, sidecar.snapshot()]
    };
    // Measured datagrams: those of the selected workload, and all.
    let change = |metric, attributes: &[(&str, &str)]| {
        let [before, after] = [&before, &after].map(|line| {
            let chosen = line.find(metric, attributes).filter(|point| is(point, &groups[0].path));
            [chosen.map(Point::amount).sum::<f64>(), line.total(metric, attributes)]
        });
        [after[0] - before[0], after[1] - before[1]]
    };
    let received = change(DURATION, &attributes);
    let sent = change(transmit::DURATION, &[("undercurrent.network.stage", "qdisc"), ("network.transport", "udp")]);
    eprintln!("{layer} of {}: {received:?} received, {sent:?} sent", groups[0].path.display());
    assert!(received[0] == received[1] && sent[0] == sent[1], "others were measured too");
    // On cgroup v1, some kernels do not provide the cgroup of a socket.
    let untold = received[0] == 0.0 && !stores_readers();
    assert!(received[0] == MESSAGES as f64 || untold, "{received:?}");
    assert!(sent[0] >= MESSAGES as f64 - skipped(MESSAGES) || untold, "{sent:?}");
}

#[test]
fn one_cgroup_is_measured_and_others_are_not() {
    everywhere("filters by cgroup", one_of_two);
}
