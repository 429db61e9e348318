//! Workloads with network namespaces of their own: layers that know no socket tell them apart by these.

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
/// What the process of the later workload calls its service.
const TENANT: &str = "tenant";

/// Waits until the sidecar has looked at a workload's process, and so at its namespace: it then knows its service too.
fn looked_at(sidecar: &Sidecar, group: &Group) {
    let named =
        |point: &Point| is(point, &group.path) && point.resource.get("service.name").is_some_and(|n| n == TENANT);
    sidecar.line("the service's name", |line| line.points.iter().any(named));
}

/// Messages over both protocols, read by a worker.
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
        // Over such a wire TCP's segments may come to this layer with a transmit time, and are lost to it.
        let lost = seen.lost("transmit_timestamp") > 0.0;
        let of_right = if lost { of_right } else { counted.right.ip_of(Version::Ipv4) };
        assert_shares(&seen, layer, None, [(&first, of_right), (&later, 0)], of_others);
    }
    if seen.served("transport").is_some_and(|by| by != "cgroup_skb") {
        assert_shares(&seen, "transport", Some(Transport::Udp), [(&first, of_right), (&later, 0)], of_others);
        let tcp = [(&first, counted.right.tcp), (&later, 0)];
        assert_shares(&seen, "transport", Some(Transport::Tcp), tcp, counted.left.tcp + counted.host.tcp);
    } else {
        // There the socket is known.
        assert_arrived(&seen, Transport::Udp, &[(&first, MESSAGES), (&later, MESSAGES)]);
    }
}

/// What a layer counted for two workloads, to the packet, and for the node, where others on the machine may add to it.
fn assert_shares(seen: &Seen, layer: &str, transport: Option<Transport>, shares: [(&Group, u64); 2], node: u64) {
    let of_node = seen.of_those(layer, transport, is_nodes);
    for (group, packets) in shares {
        let of = seen.of_those(layer, transport, |point| is(point, &group.path));
        eprintln!("{layer} {transport:?}: {of} of {}, {of_node} of the node", group.path.display());
        assert_eq!(of, packets as f64, "{layer} {transport:?} of {}", group.path.display());
    }
    assert!(of_node >= node as f64, "{layer} {transport:?}: only {of_node} of {node} are the node's");
}

/// What the three namespaces received before.
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
