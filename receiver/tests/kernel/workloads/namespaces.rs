//! Tests of workloads with separate network namespaces: layers without a socket identify workloads by namespace.

use super::{
    super::{
        extra::{DELIVER, configuration},
        support::{
            cgroups::Group,
            counters::Received,
            line::Point,
            sidecar::Sidecar,
            talk::Talk,
            wire::{Version, Wire},
        },
    },
    client::Client,
    passed::assert_arrived,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::{Seen, Watch, is, is_nodes},
    worker::Worker,
};

const MESSAGES: usize = 30;
/// The service name of the later workload's process.
const TENANT: &str = "tenant";

/// Waits until the sidecar has inspected a workload's process: its namespace and its service are then known.
fn looked_at(sidecar: &Sidecar, group: &Group) {
    let named =
        |point: &Point| is(point, &group.path) && point.resource.get("service.name").is_some_and(|n| n == TENANT);
    sidecar.line("the service's name", |line| line.points.iter().any(named));
}

/// Exchanges messages over both protocols with a worker.
fn exchange(worker: &Worker, wire: &Wire) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (mut socket, address) = worker.bind(transport, wire.server());
        let client = Client::connect(wire, transport, address);
        if transport == Transport::Tcp {
            socket = worker.accept(socket);
        }
        worker.answers(socket, MESSAGES, || client.ask(MESSAGES));
    }
}

fn two_in_one(scene: &Scene) {
    let [first, later] = [scene.group(), scene.group()];
    let (wire, host) = (Wire::veth(Version::Ipv4), Wire::host(Version::Ipv4));
    let owner = Worker::start(&first.own(), &wire.right);
    let (_folder, file) = configuration(&[DELIVER]);
    let sidecar = scene.sidecar(&["--config", file.to_str().unwrap()]);
    let tenant = Worker::start_with(&later.own(), &wire.right, &[("OTEL_SERVICE_NAME", TENANT)]);
    looked_at(&sidecar, &later);

    let before = Before::read(&wire, &host);
    let watch = Watch::begin(&sidecar, &wire);
    exchange(&owner, &wire);
    exchange(&tenant, &wire);
    let mut talk = Talk::open(&host);
    talk.udp(MESSAGES, 100);
    let seen = watch.end();
    let counted = before.until_now(&wire, &host);

    let udp = |received: Received| received.udp_of(Version::Ipv4);
    let (of_right, of_others) = (udp(counted.right), udp(counted.left) + udp(counted.host));
    for layer in ["ip", DELIVER].into_iter().filter(|layer| seen.served(layer).is_some()) {
        // On such a wire, TCP segments may reach this layer with a transmit time, and are then lost to the layer.
        let lost = seen.lost("transmit_timestamp") > 0.0;
        let of_right = if lost { of_right } else { counted.right.ip_of(Version::Ipv4) };
        assert_shares(&seen, layer, None, [(&first, of_right), (&later, 0)], of_others);
    }
    if seen.served("transport").is_some_and(|by| by != "cgroup_skb") {
        assert_shares(&seen, "transport", Some(Transport::Udp), [(&first, of_right), (&later, 0)], of_others);
        let tcp = [(&first, counted.right.tcp), (&later, 0)];
        assert_shares(&seen, "transport", Some(Transport::Tcp), tcp, counted.left.tcp + counted.host.tcp);
    } else {
        // At this layer the socket is known.
        assert_arrived(&seen, Transport::Udp, &[(&first, MESSAGES), (&later, MESSAGES)]);
    }
}

/// Checks the exact counts of a layer for two workloads, and the count for the node, to which other programs may
/// add packets.
fn assert_shares(seen: &Seen, layer: &str, transport: Option<Transport>, shares: [(&Group, u64); 2], node: u64) {
    let of_node = seen.of_those(layer, transport, is_nodes);
    for (group, packets) in shares {
        let of = seen.of_those(layer, transport, |point| is(point, &group.path));
        eprintln!("{layer} {transport:?}: {of} of {}, {of_node} of the node", group.path.display());
        assert_eq!(of, packets as f64, "{layer} {transport:?} of {}", group.path.display());
    }
    assert!(of_node >= node as f64, "{layer} {transport:?}: only {of_node} of {node} are the node's");
}

/// The counts of the three namespaces before the exchange.
struct Before {
    left: Received,
    right: Received,
    host: Received,
}

impl Before {
    fn read(wire: &Wire, host: &Wire) -> Self {
        Self { left: Received::by(&wire.left), right: Received::by(&wire.right), host: host.received() }
    }

    fn until_now(self, wire: &Wire, host: &Wire) -> Self {
        let now = Self::read(wire, host);
        Self { left: now.left - self.left, right: now.right - self.right, host: now.host - self.host }
    }
}

#[test]
fn a_namespace_belongs_to_the_workload_that_had_it_first() {
    everywhere("network namespaces", two_in_one);
}
