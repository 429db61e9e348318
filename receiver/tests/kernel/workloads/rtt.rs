//! Compares round-trip times with TCP's values for each connection at the read.

use std::{array, fs, os::fd::OwnedFd, time::Duration};

use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};

use super::{
    super::{
        latency::readers_served_by,
        support::{
            cgroups::Group,
            line::{Line, Point, Value},
            sidecar::Sidecar,
            surroundings::{alone, often, stores_readers, virtual_machine},
            talk::Talk,
            truth::record,
            wire::{Version, Wire},
        },
    },
    client::Client,
    scene::{Scene, everywhere},
    sockets::Transport,
    watch::{is, is_nodes},
    worker::Worker,
};

const RTT: &str = "undercurrent.tcp.rtt";
const MESSAGES: usize = 20;
/// The number of raw sockets, which read segments and have no connection. Their memory contains data at the offset
/// of a connection's time.
const RAW: usize = 100;
/// Exchanges after which the smoothed time no longer depends on the first time: each new time contributes an
/// eighth.
const FORGOTTEN: usize = 100;
/// A qdisc that takes this long to pass a message of a hundred bytes and its headers, one after another.
const SLOW: &str = "qdisc add dev wire root tbf rate 20kbit burst 400 limit 20000";
const PASSAGE: Duration = Duration::from_millis(66);

/// Returns the number of times between two lines, and their sum in seconds.
fn grown([before, after]: [&Line; 2], version: Version, whose: impl Fn(&Point) -> bool) -> (f64, f64) {
    let attributes = [("network.type", version.name())];
    let of = |line: &Line| {
        let points = line.find(RTT, &attributes).filter(|point| whose(point));
        points.fold((0.0, 0.0), |(count, sum), point| match &point.value {
            Value::Histogram(histogram) => (count + histogram.count as f64, sum + histogram.sum.unwrap()),
            _ => (count, sum),
        })
    };
    let ((count, sum), (more, longer)) = (of(before), of(after));
    (more - count, longer - sum)
}

/// A server in a separate cgroup, and its client.
struct Served<'a> {
    sidecar: &'a Sidecar,
    group: &'a Group,
    version: Version,
    server: Worker,
    connection: usize,
    client: Client,
}

impl<'a> Served<'a> {
    fn begin(sidecar: &'a Sidecar, group: &'a Group, wire: &Wire) -> Self {
        let server = Worker::start(&group.own(), &wire.right);
        let (listener, address) = server.bind(Transport::Tcp, wire.server());
        let client = Client::connect(wire, Transport::Tcp, address);
        let connection = server.accept(listener);
        Self { sidecar, group, version: wire.version, server, connection, client }
    }

    /// Returns the mean in seconds from the server's values, and asserts that the sidecar's mean agrees to the
    /// microsecond of TCP's resolution.
    fn mean(&self) -> f64 {
        let before = self.sidecar.snapshot();
        let times = self.server.times(self.connection, MESSAGES, || self.client.ask(MESSAGES));
        let after = self.sidecar.snapshot();
        assert!(times.iter().all(|time| *time > 0), "{times:?}");
        // The server peeks at each message, then reads it.
        let reads = 2.0 * times.len() as f64;
        let least = 2.0 * times.iter().map(|time| f64::from(*time) / 1e6).sum::<f64>();
        let (count, sum) = grown([&before, &after], self.version, |point| is(point, &self.group.path));
        eprintln!("{:?}: {count} times of {reads}, {sum} s of {least} s", self.version);
        // Without socket storage, the workload of a socket is unknown on cgroup v1.
        if count > 0.0 || stores_readers() {
            assert_eq!(count, reads);
            // TCP's values are in whole microseconds.
            record(RTT, sum, least..=least + reads / 1e6);
        }
        least / reads
    }
}

fn near_and_far(scene: &Scene, version: Version) {
    let (group, sidecar, wire) = (scene.group(), scene.sidecar(&[]), Wire::veth(version));
    let served = Served::begin(&sidecar, &group, &wire);
    // The handshake determines the first time, which is long on a busy machine.
    served.server.answers(served.connection, FORGOTTEN, || served.client.ask(FORGOTTEN));
    let near = served.mean();
    wire.right.tc(SLOW);
    served.server.answers(served.connection, MESSAGES, || served.client.ask(MESSAGES));
    let far = served.mean();
    assert!(far > PASSAGE.as_secs_f64() / 2.0 && far > 2.0 * near, "{near} s without and {far} s with the slow link");
}

#[test]
fn times_are_those_that_tcp_says_and_the_readers() {
    everywhere("round-trip times", |scene| {
        Version::ALL.into_iter().for_each(|version| near_and_far(scene, version));
    });
}

/// Returns the lines of a sidecar with this configuration around some reads, and the number of reads.
fn configured(configuration: &str) -> ([Line; 2], f64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    fs::write(&path, configuration).unwrap();
    let sidecar = Sidecar::start_with(often(), &["--config", path.to_str().unwrap()], &[]);
    let wire = Wire::veth(Version::Ipv4);
    let raw = || socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).unwrap();
    let raw: [OwnedFd; RAW] = wire.right.run(|| array::from_fn(|_| raw()));
    let before = sidecar.snapshot();
    let mut talk = Talk::open(&wire);
    talk.tcp(MESSAGES, 100);
    talk.udp(MESSAGES, 100);
    for socket in raw {
        recv(socket, &mut [0; 200], RecvFlags::DONTWAIT).unwrap();
    }
    ([before, sidecar.snapshot()], talk.tcp_reads as f64)
}

const NO_WORKLOADS: &str = "workloads: {enabled: false}\n";
const NO_TIMES: &str = "signals: {tcp_rtt: {enabled: false}}\n";

#[test]
fn times_are_the_nodes_where_workloads_are_off() {
    let Some(_alone) = alone("round-trip times without workloads") else { return };
    let ([before, after], reads) = configured(NO_WORKLOADS);
    assert!(after.find(RTT, &[]).all(is_nodes));
    let (count, _) = grown([&before, &after], Version::Ipv4, |_| true);
    assert!(count == reads || count > reads && virtual_machine().is_none(), "{count} times of {reads}");
}

const NO_LATENCY: &str = "workloads: {enabled: false}\nsignals: {latency: {enabled: false}, receive_wait: {enabled: false}, slow_packets: {enabled: false}}\n";

#[test]
fn times_are_had_where_no_latency_is_measured() {
    let Some(_alone) = alone("round-trip times without latency") else { return };
    let ([before, after], reads) = configured(NO_LATENCY);
    let by = readers_served_by(&after);
    assert!(by.as_deref().is_some_and(|by| by != "socket_read"), "nothing else sees reads here: {by:?}");
    let (count, _) = grown([&before, &after], Version::Ipv4, |_| true);
    assert!(count == reads || count > reads && virtual_machine().is_none(), "{count} times of {reads}");
}

#[test]
fn nothing_is_read_of_connections_where_times_are_off() {
    let Some(_alone) = alone("no round-trip times") else { return };
    let ([_, after], _) = configured(NO_TIMES);
    assert_eq!(after.find(RTT, &[]).count(), 0);
    assert!(readers_served_by(&after).is_some(), "who reads is asked for the workloads");
    let ([_, after], _) = configured(&[NO_WORKLOADS, NO_TIMES].concat());
    assert_eq!(after.find(RTT, &[]).count(), 0);
    assert_eq!(readers_served_by(&after), None, "no signal requires the reader");
}
