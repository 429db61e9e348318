//! The points of all series, by the workload's resource.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::{peers::Amount, transactions::Role};

use super::{
    Settings,
    series::{Key, Peer},
    totals::Totals,
};
use crate::{
    attributes::{ROLE, role},
    tcp_transactions::DIRECTION,
    telemetry::{
        AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, Resource, Scale, UnixNanos,
        View,
    },
    workloads::{Slot, Workloads},
};

const NAMES: &str = "a workload, a network, `node` or `other`";
const CLIENT: AttributeKey = AttributeKey::open("undercurrent.client", NAMES);
const SERVER: AttributeKey = AttributeKey::open("undercurrent.server", NAMES);
const PEER: AttributeKey = AttributeKey::listed("undercurrent.peer", &["workload", "network", "other"]);
const PORT: AttributeKey = AttributeKey::open("server.port", "the server's own port");
/// The labels of Grafana's service graph.
const GRAPH: &[AttributeKey] = &[AttributeKey::open("client", NAMES), AttributeKey::open("server", NAMES)];

const DURATION: Descriptor = Descriptor {
    name: "undercurrent.tcp.peer.transaction.duration",
    unit: "s",
    description: "Time of a transaction of a TCP connection with a peer, as `undercurrent.tcp.transaction.duration` defines it.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[ROLE, CLIENT, SERVER, PEER, PORT],
    view: View::Section,
};

const REQUESTS: Descriptor = Descriptor::counter(
    "undercurrent.tcp.peer.transactions",
    "{transaction}",
    "Transactions of TCP connections with a peer, also those whose duration is not known.",
    &[ROLE, CLIENT, SERVER, PEER, PORT],
);

const FAILURES: Descriptor = Descriptor::counter(
    "undercurrent.tcp.peer.failures",
    "{connection}",
    "TCP connections that the peer refused or reset.",
    &[ROLE, CLIENT, SERVER, PEER, PORT],
);

const IO: Descriptor = Descriptor::counter(
    "undercurrent.tcp.peer.io",
    "By",
    "Bytes of data that TCP connections sent to and received from a peer, without headers and retransmissions.",
    &[DIRECTION, ROLE, CLIENT, SERVER, PEER, PORT],
);

const GRAPH_REQUESTS: Descriptor = Descriptor {
    view: View::Hidden,
    ..Descriptor::counter(
        "traces_service_graph_request_total",
        "{request}",
        "Calls between two services, each once: transactions, and connections that failed.",
        GRAPH,
    )
};

const GRAPH_FAILURES: Descriptor = Descriptor {
    view: View::Hidden,
    ..Descriptor::counter(
        "traces_service_graph_request_failed_total",
        "{request}",
        "Calls between two services that failed: connections that were refused or reset.",
        GRAPH,
    )
};

const fn graph_seconds(name: &'static str, description: &'static str) -> Descriptor {
    Descriptor {
        name,
        unit: "s",
        description,
        instrument: Instrument::Histogram,
        attributes: GRAPH,
        view: View::Hidden,
    }
}

const GRAPH_SERVER: Descriptor =
    graph_seconds("traces_service_graph_request_server_seconds", "Time of calls between two services, at the server.");
const GRAPH_CLIENT: Descriptor =
    graph_seconds("traces_service_graph_request_client_seconds", "Time of calls between two services, at the client.");

/// Every metric, at the index of [`Is`].
pub static METRICS: &[&Descriptor] =
    &[&DURATION, &REQUESTS, &FAILURES, &IO, &GRAPH_REQUESTS, &GRAPH_FAILURES, &GRAPH_SERVER, &GRAPH_CLIENT];

/// The index of a metric in [`METRICS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Is {
    Duration,
    Requests,
    Failures,
    Io,
    GraphRequests,
    GraphFailures,
    GraphServer,
    GraphClient,
}

/// The value of a point that may get further summands.
enum Sum {
    Count(u64),
    Durations(Totals),
}

/// The points, with equal attributes added up: several workloads may have one name.
pub struct Points<'a> {
    workloads: &'a Workloads,
    settings: &'a Settings,
    scale: Scale,
    sums: BTreeMap<(Slot, Is, Attributes), Sum>,
}

impl<'a> Points<'a> {
    /// Returns no points.
    pub fn new(workloads: &'a Workloads, settings: &'a Settings, scale: Scale) -> Self {
        Self { workloads, settings, scale, sums: BTreeMap::new() }
    }

    /// Adds the points of a series.
    pub fn add(&mut self, key: &Key, totals: &Totals) {
        let own = name(self.workloads, key.slot);
        let (peer, kind) = match &key.peer {
            Peer::Workload(slot) => (name(self.workloads, *slot), "workload"),
            Peer::Network(name) => (name.clone(), "network"),
            Peer::Other => (OTHER.to_owned(), "other"),
        };
        let (client, server) = if key.is_server { (peer, own) } else { (own, peer) };
        let mut attributes = of_own(key.role(), &client, &server, kind);
        if let Some(port) = key.port {
            attributes.set(PORT.key, u32::from(port));
        }
        self.add_own(key.slot, &attributes, totals);
        self.add_to_graph(key, &client, &server, totals);
    }

    /// Adds the points of connections that found no entry in the table of edges.
    pub fn add_other(&mut self, role: Role, totals: &Totals) {
        self.add_own(Slot::NODE, &of_own(role, OTHER, OTHER, "other"), totals);
        let key = Key { slot: Slot::NODE, is_server: matches!(role, Role::Server), peer: Peer::Other, port: None };
        self.add_to_graph(&key, OTHER, OTHER, totals);
    }

    fn add_own(&mut self, slot: Slot, attributes: &Attributes, totals: &Totals) {
        self.durations(slot, Is::Duration, attributes, totals);
        self.count(slot, Is::Requests, attributes.clone(), totals.transactions());
        self.count(slot, Is::Failures, attributes.clone(), totals.amount(Amount::Failed));
        for (direction, amount) in [("transmit", Amount::Sent), ("receive", Amount::Received)] {
            self.count(slot, Is::Io, attributes.clone().with(DIRECTION.key, direction), totals.amount(amount));
        }
    }

    /// Adds a series to the service graph. A transaction counts at its server if the server is on this node, and else at its client,
    /// unless another sidecar measures the server. A failure counts wherever it is seen: only one end sees that the other refused or reset
    /// the connection.
    fn add_to_graph(&mut self, key: &Key, client: &str, server: &str, totals: &Totals) {
        let attributes = Attributes::new().with("client", client.to_owned()).with("server", server.to_owned());
        let is_counted = match &key.peer {
            _ if key.is_server => true,
            Peer::Workload(_) => false,
            Peer::Network(network) => !self.settings.measured_networks.contains(network),
            Peer::Other => true,
        };
        let failed = totals.amount(Amount::Failed);
        let requests = if is_counted { totals.transactions() } else { 0 };
        self.count(key.slot, Is::GraphRequests, attributes.clone(), requests + failed);
        self.count(key.slot, Is::GraphFailures, attributes.clone(), failed);
        let view = if key.is_server { Is::GraphServer } else { Is::GraphClient };
        self.durations(key.slot, view, &attributes, totals);
    }

    fn count(&mut self, slot: Slot, metric: Is, attributes: Attributes, count: u64) {
        if count == 0 {
            return;
        }
        if let Sum::Count(sum) = self.sums.entry((slot, metric, attributes)).or_insert(Sum::Count(0)) {
            *sum += count;
        }
    }

    fn durations(&mut self, slot: Slot, metric: Is, attributes: &Attributes, totals: &Totals) {
        if !totals.has_durations() {
            return;
        }
        let zero = || Sum::Durations(Totals::zero(self.scale));
        if let Sum::Durations(sum) = self.sums.entry((slot, metric, attributes.clone())).or_insert_with(zero) {
            sum.add(totals);
        }
    }

    /// Adds all points to the readings. `start` is the start time of the node's.
    pub fn into_readings(self, readings: &mut Readings, start: UnixNanos) {
        for ((slot, metric, attributes), sum) in self.sums {
            let started = if slot == Slot::NODE { Some(start) } else { self.workloads.start(slot) };
            let Some(start) = started else { continue };
            let data = match sum {
                Sum::Count(count) => Data::count(count),
                Sum::Durations(totals) => Data::Histogram(totals.durations(self.scale)),
            };
            let points = vec![Point { attributes, start, data }];
            readings.add(slot, Metric { descriptor: METRICS[metric as usize], points });
        }
    }
}

fn of_own(role_of: Role, client: &str, server: &str, kind: &'static str) -> Attributes {
    let attributes = Attributes::new().with(ROLE.key, role(role_of)).with(CLIENT.key, client.to_owned());
    attributes.with(SERVER.key, server.to_owned()).with(PEER.key, kind)
}

/// The name of peers that no other name describes.
const OTHER: &str = "other";
/// The attributes that name a workload, in order of preference.
const NAMED_BY: [&str; 6] = [
    "service.name",
    "k8s.pod.name",
    "container.name",
    "undercurrent.workload.unit",
    "undercurrent.workload.cgroup",
    "container.id",
];

/// Returns the name of a workload.
fn name(workloads: &Workloads, slot: Slot) -> String {
    match slot {
        Slot::NODE => "node".to_owned(),
        slot => {
            workloads.resource(slot).and_then(|resource| of_resource(&resource)).unwrap_or_else(|| OTHER.to_owned())
        }
    }
}

fn of_resource(resource: &Resource) -> Option<String> {
    NAMED_BY.iter().find_map(|key| resource.attributes.get(key)).map(ToString::to_string)
}
