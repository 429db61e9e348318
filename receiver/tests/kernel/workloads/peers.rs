//! Compares the edges between workloads with the calls of a chain and a fan-out, through translated addresses.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::Command,
    time::Duration,
};

use super::{
    super::{
        latency::{LOST, served_by},
        support::{
            cgroups::Group,
            line::{Line, Point},
            namespace::Namespace,
            sidecar::{Sidecar, file},
            surroundings::skip,
            truth::{exactly, record},
            wire::Version,
        },
    },
    message::Turns,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::is,
    worker::Worker,
};

const DURATION: &str = "undercurrent.tcp.peer.transaction.duration";
const TRANSACTIONS: &str = "undercurrent.tcp.peer.transactions";
const FAILURES: &str = "undercurrent.tcp.peer.failures";
const IO: &str = "undercurrent.tcp.peer.io";
const REQUESTS: &str = "traces_service_graph_request_total";
const FAILED: &str = "traces_service_graph_request_failed_total";
const SERVER_SECONDS: &str = "traces_service_graph_request_server_seconds";
const CLIENT_SECONDS: &str = "traces_service_graph_request_client_seconds";

const SETTINGS: &str = "signals: {tcp_peers: {enabled: true, networks: {outside: [10.79.0.0/16, fd00:79::/32]}}}";
/// The hosts of [`Hub`] are in a network.
const NAMED: &str = "networks: {hosts: [10.78.0.0/16, fd00:78::/32]}";

const ASKS: Turns =
    Turns { count: 1, asks: true, reads: 1_000, delay: Duration::ZERO, pieces: 1, writes: 100, pause: Duration::ZERO };
const ANSWERS: Turns =
    Turns { count: 1, asks: false, reads: 100, delay: Duration::ZERO, pieces: 1, writes: 1_000, ..ASKS };

/// Namespaces around a router that translates addresses.
struct Hub {
    router: Namespace,
    version: Version,
    hosts: Vec<Namespace>,
}

impl Hub {
    fn new(version: Version) -> Self {
        let router = Namespace::new();
        router.run(|| {
            for family in ["ipv4", "ipv6"] {
                fs::write(format!("/proc/sys/net/{family}/conf/all/forwarding"), "1").unwrap();
            }
        });
        Self { router, version, hosts: Vec::new() }
    }

    /// Returns an address of a host, or of the router on the way to it.
    fn address(&self, host: usize, end: u8) -> IpAddr {
        let network = u8::try_from(host).unwrap();
        match self.version {
            Version::Ipv4 => Ipv4Addr::new(10, 78, network, end).into(),
            Version::Ipv6 => Ipv6Addr::new(0xfd00, 0x78, network.into(), 0, 0, 0, 0, end.into()).into(),
        }
    }

    /// Returns the address of a service, which the router translates.
    fn service(&self, number: u8) -> SocketAddr {
        let address = match self.version {
            Version::Ipv4 => Ipv4Addr::new(10, 96, 0, number).into(),
            Version::Ipv6 => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, number.into()).into(),
        };
        SocketAddr::new(address, 80)
    }

    /// Adds a host, and returns its number.
    fn add(&mut self) -> usize {
        let (number, host) = (self.hosts.len(), Namespace::new());
        host.ip(&format!("link add wire type veth peer name host{number} netns {}", self.router.path()));
        let length = if self.version == Version::Ipv4 { "/24" } else { "/64 nodad" };
        for (namespace, device, end) in [(&host, "wire".to_owned(), 2), (&self.router, format!("host{number}"), 1)] {
            namespace.ip(&format!("address add {}{length} dev {device}", self.address(number, end)));
            namespace.ip(&format!("link set dev {device} up"));
        }
        host.ip(&format!("route add default via {}", self.address(number, 1)));
        self.hosts.push(host);
        number
    }

    /// Translates the address of a service to that of a server, and for some that of the client to the router's.
    fn translate(&self, number: u8, to: SocketAddr, hides_client: bool) {
        let family = if self.version == Version::Ipv4 { "ip" } else { "ip6" };
        let (service, server, port) = (self.service(number), to.ip(), to.port());
        let hide = if hides_client {
            format!("ct original {family} daddr {} masquerade;", service.ip())
        } else {
            String::new()
        };
        let rules = format!(
            "table {family} service{number} {{
                chain before {{
                    type nat hook prerouting priority dstnat;
                    {family} daddr {} tcp dport {} dnat to {to};
                }}
                chain after {{ type nat hook postrouting priority srcnat; {hide} }}
            }}",
            service.ip(),
            service.port(),
        );
        self.nft(&rules).unwrap_or_else(|error| panic!("{server} {port}: {error}"));
    }

    /// Answers handshakes in place of a server, and changes the sequence numbers of the connection.
    fn stand_before(&self, server: SocketAddr) -> Result<(), String> {
        self.router
            .run(|| fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0"))
            .map_err(|error| error.to_string())?;
        let family = if self.version == Version::Ipv4 { "ip" } else { "ip6" };
        let to = format!("{family} daddr {} tcp dport {}", server.ip(), server.port());
        self.nft(&format!(
            "table {family} proxy {{
                chain before {{ type filter hook prerouting priority raw; {to} tcp flags syn notrack; }}
                chain forward {{
                    type filter hook forward priority filter;
                    {to} ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm;
                    ct state invalid drop;
                }}
            }}"
        ))
    }

    fn nft(&self, rules: &str) -> Result<(), String> {
        let output = self.router.run(|| Command::new("nft").arg(rules).output().unwrap());
        if output.status.success() { Ok(()) } else { Err(format!("{output:?}")) }
    }
}

/// A process of a service in its own cgroup.
struct Service {
    // Dropped first: a cgroup with a process cannot be removed.
    worker: Worker,
    group: Group,
    host: usize,
}

impl Service {
    fn start(scene: &Scene, hub: &Hub, host: usize) -> Self {
        let group = scene.group();
        let worker = Worker::start(&group.own(), &hub.hosts[host]);
        Self { group, worker, host }
    }

    fn name(&self) -> String {
        self.group.path.display().to_string()
    }

    fn listen(&self, hub: &Hub) -> (usize, SocketAddr) {
        self.worker.bind(Transport::Tcp, hub.address(self.host, 2))
    }

    /// Calls a server, on several connections.
    fn call(&self, at: SocketAddr, server: &Self, listener: usize, [connections, calls]: [usize; 2]) {
        for connection in 0..connections {
            let (asks, answers) = (self.worker.connect(at).0, server.worker.accept(listener));
            let turns = |turns| Turns { count: calls, ..turns };
            self.worker.converse((asks, turns(ASKS)), &server.worker, (answers, turns(ANSWERS)));
            let ends = [(&self.worker, asks), (&server.worker, answers)];
            let first = connection % 2;
            [ends[first], ends[1 - first]].iter().for_each(|(worker, socket)| worker.close(*socket));
        }
    }
}

/// The number of calls by role, client, server and port, in the points of some workloads.
type Edges = BTreeMap<(String, String, String, String), f64>;

fn edges(line: &Line, metric: &str, services: &[&Service]) -> Edges {
    let is_ours = |point: &&Point| services.iter().any(|service| is(point, &service.group.path));
    let text = |point: &Point, key: &str| point.attributes.get(key).cloned().unwrap_or_default();
    let edge = |point: &Point| {
        let key = ["undercurrent.role", "undercurrent.client", "undercurrent.server", "server.port"]
            .map(|key| text(point, key));
        (<_>::from(key), point.amount())
    };
    line.find(metric, &[]).filter(is_ours).map(edge).collect()
}

fn sidecar(scene: &Scene, test: &str, settings: &str) -> Option<Sidecar> {
    let file = file(settings);
    let sidecar = scene.sidecar(&["--config", file.path().to_str().unwrap()]);
    if served_by(&sidecar.snapshot(), "tcp_segment").is_none() {
        skip(&format!("{test}: programs cannot read the socket of a packet here"));
        return None;
    }
    Some(sidecar)
}

/// A chain (front, middle, store, disk) and a fan-out (middle to store, cache and a helper in its own namespace). The router translates
/// the address of `middle`, and for `cache` that of the client too.
fn graph(scene: &Scene, version: Version) {
    let Some(sidecar) = sidecar(scene, "peers", SETTINGS) else { return };
    let mut hub = Hub::new(version);
    let hosts = [(); 5].map(|()| hub.add());
    let [front, middle, store, cache, disk] = hosts.map(|host| Service::start(scene, &hub, host));
    let helper = Service::start(scene, &hub, middle.host);
    let (at_middle, middle_address) = middle.listen(&hub);
    let (at_store, store_address) = store.listen(&hub);
    let (at_cache, cache_address) = cache.listen(&hub);
    let (at_disk, disk_address) = disk.listen(&hub);
    let loopback =
        if version == Version::Ipv4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
    let (at_helper, helper_address) = helper.worker.bind(Transport::Tcp, loopback);
    hub.translate(1, middle_address, false);
    hub.translate(2, cache_address, true);
    front.call(hub.service(1), &middle, at_middle, [3, 4]);
    middle.call(store_address, &store, at_store, [1, 7]);
    middle.call(hub.service(2), &cache, at_cache, [5, 1]);
    middle.call(helper_address, &helper, at_helper, [1, 3]);
    store.call(disk_address, &disk, at_disk, [2, 2]);
    let services = [&front, &middle, &store, &cache, &disk, &helper];
    let line = sidecar.snapshot();
    let calls = [
        (&front, &middle, middle_address, 12.0),
        (&middle, &store, store_address, 7.0),
        (&middle, &cache, cache_address, 5.0),
        (&middle, &helper, helper_address, 3.0),
        (&store, &disk, disk_address, 4.0),
    ];
    let of = |role: &str| {
        calls.each_ref().map(|(client, server, at, count)| {
            ((role.to_owned(), client.name(), server.name(), at.port().to_string()), *count)
        })
    };
    let expected: Edges = of("client").into_iter().chain(of("server")).collect();
    assert_eq!(edges(&line, TRANSACTIONS, &services), expected);
    assert_eq!(edges(&line, DURATION, &services), expected, "the duration of every call is known");
    assert_eq!(edges(&line, FAILURES, &services), Edges::new());
    let peers = |kind| {
        line.find(TRANSACTIONS, &[("undercurrent.peer", kind)])
            .filter(|point| services.iter().any(|of| is(point, &of.group.path)))
            .count()
    };
    assert_eq!(["workload", "network", "other"].map(peers), [10, 0, 0]);
    for (client, server, _, count) in calls {
        let ends = [("undercurrent.client", &*client.name()), ("undercurrent.server", &server.name())];
        for (role, direction, bytes) in [
            ("client", "transmit", 100.0),
            ("client", "receive", 1_000.0),
            ("server", "transmit", 1_000.0),
            ("server", "receive", 100.0),
        ] {
            let attributes = [ends[0], ends[1], ("undercurrent.role", role), ("network.io.direction", direction)];
            record(IO, line.total(IO, &attributes), exactly(count * bytes));
        }
        record(
            TRANSACTIONS,
            line.total(TRANSACTIONS, &[ends[0], ends[1], ("undercurrent.role", "server")]),
            exactly(count),
        );
        let services = [("client", ends[0].1), ("server", ends[1].1)];
        record(REQUESTS, line.total(REQUESTS, &services), exactly(count));
        record(SERVER_SECONDS, line.total(SERVER_SECONDS, &services), exactly(count));
        record(CLIENT_SECONDS, line.total(CLIENT_SECONDS, &services), exactly(count));
        assert_eq!(line.total(FAILED, &services), 0.0);
    }
}

#[test]
fn the_graph_of_a_chain_and_a_fan_out_is_complete_through_translated_addresses() {
    everywhere("peers", |scene| Version::ALL.into_iter().for_each(|version| graph(scene, version)));
}

/// Returns the calls of the service graph between a service and a peer: both ends, or the number that failed.
fn calls(line: &Line, metric: &str, client: &str, server: &str) -> f64 {
    line.total(metric, &[("client", client), ("server", server)])
}

/// Calls between ends that are not paired, as on two nodes, and connections that fail.
fn apart(scene: &Scene, version: Version, is_measured: bool) {
    const CALLS: [usize; 2] = [2, 5];
    let measured = if is_measured { ", measured_networks: [hosts]" } else { "" };
    let settings = format!("signals: {{tcp_peers: {{enabled: true, {NAMED}{measured}}}}}");
    let Some(sidecar) = sidecar(scene, "remote peers", &settings) else { return };
    let mut hub = Hub::new(version);
    let hosts = [(); 2].map(|()| hub.add());
    let [client, server] = hosts.map(|host| Service::start(scene, &hub, host));
    let (listener, address) = server.listen(&hub);
    if let Err(error) = hub.stand_before(address) {
        return skip(&format!("remote peers: this kernel has no proxy of handshakes: {error}"));
    }
    client.call(address, &server, listener, CALLS);
    // A server that closes before it has read everything resets the connection.
    let (asks, answers) = (client.worker.connect(address).0, server.worker.accept(listener));
    let only = |turns, reads, pieces| Turns { count: 1, reads, pieces, ..turns };
    client.worker.converse((asks, only(ASKS, 0, 1)), &server.worker, (answers, only(ANSWERS, 1, 0)));
    server.worker.close(answers);
    server.worker.close(listener);
    // The other host refuses.
    client.worker.refused(SocketAddr::new(hub.address(server.host, 2), 9));
    let line = sidecar.snapshot();
    let count = CALLS.iter().product::<usize>() as f64;
    let of_client = |metric| {
        line.find(metric, &[("undercurrent.role", "client"), ("undercurrent.peer", "network")])
            .filter(|point| is(point, &client.group.path))
            .map(Point::amount)
            .sum::<f64>()
    };
    record(FAILURES, of_client(FAILURES), exactly(2.0));
    assert_eq!(of_client(TRANSACTIONS), count);
    let (own, other) = (client.name(), server.name());
    let at_client = if is_measured { 0.0 } else { count };
    assert_eq!(calls(&line, REQUESTS, &own, "hosts"), at_client + 2.0, "transactions and failures");
    record(FAILED, calls(&line, FAILED, &own, "hosts"), exactly(2.0));
    assert_eq!(calls(&line, REQUESTS, "hosts", &other), count);
    assert_eq!(calls(&line, REQUESTS, &own, &other), 0.0);
}

#[test]
fn refused_and_remote_calls_are_counted_once() {
    everywhere("remote peers", |scene| {
        Version::ALL
            .into_iter()
            .for_each(|version| [false, true].into_iter().for_each(|is_measured| apart(scene, version, is_measured)));
    });
}

/// More edges than the table has entries.
fn too_many(scene: &Scene) {
    const CLIENTS: usize = 4;
    const PORTS: usize = 20;
    const EDGES: usize = 64;
    let Some(sidecar) =
        sidecar(scene, "too many peers", &format!("signals: {{tcp_peers: {{enabled: true, edges: {EDGES}}}}}"))
    else {
        return;
    };
    let mut hub = Hub::new(Version::Ipv4);
    let hosts = [(); 2].map(|()| hub.add());
    let server = Service::start(scene, &hub, hosts[0]);
    let clients = [(); CLIENTS].map(|()| Service::start(scene, &hub, hosts[1]));
    for _ in 0..PORTS {
        let (listener, address) = server.listen(&hub);
        clients.iter().for_each(|client| client.call(address, &server, listener, [1, 2]));
        server.worker.close(listener);
    }
    let line = sidecar.snapshot();
    let services: Vec<&Service> = clients.iter().chain([&server]).collect();
    let own: f64 = edges(&line, TRANSACTIONS, &services).values().sum();
    let other = line.total(TRANSACTIONS, &[("undercurrent.client", "other"), ("undercurrent.server", "other")]);
    let lost = line.total(LOST, &[("undercurrent.signal", "tcp_peers"), ("undercurrent.reason", "edge_limit")]);
    eprintln!("{own} in {EDGES} edges, {other} in others, {lost} losses");
    // Entries of workloads that end during the test are used again, so more edges than entries may have been counted.
    assert!(own >= EDGES as f64 && other > 0.0);
    assert_eq!(lost, other, "each transaction in no edge of its own is a loss");
    record(TRANSACTIONS, own + other, exactly((CLIENTS * PORTS * 2 * 2) as f64));
}

#[test]
fn calls_beyond_the_table_of_edges_are_other() {
    everywhere("too many peers", too_many);
}
