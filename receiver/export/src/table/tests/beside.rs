//! Tests of related metrics in one section: the delay of the host next to the delay of the network.

use super::*;
use crate::{
    telemetry::ResourceMetrics,
    testing::{RECEIVE_WAIT, RTT, resource_metrics},
};

/// Returns a histogram with a quarter of its counts in one bucket, and most others four octaves below.
fn spread(exponent: i32, count: u64) -> Data {
    let mut buckets = vec![0; 17];
    (buckets[0], buckets[16]) = (count * 9, count);
    Data::Histogram(histogram(4 * (exponent - 4), buckets, 0.0))
}

fn ipv4(of: &[(&'static str, &'static str)]) -> Attributes {
    let attributes = Attributes::new().with("network.type", "ipv4");
    of.iter().fold(attributes, |attributes, (key, value)| attributes.with(*key, *value))
}

/// A workload's reads with the tails of their durations: log2 of the seconds at the host, in the queue and in the
/// network.
struct Reads {
    name: &'static str,
    reads: u64,
    host: i32,
    wait: Option<i32>,
    rtt: Option<i32>,
}

impl Reads {
    fn metrics(&self) -> ResourceMetrics {
        const LAYER: &str = "undercurrent.network.layer";
        const TRANSPORT: (&str, &str) = ("network.transport", "tcp");
        // The same metrics also have points that the section does not show.
        let others = [
            ipv4(&[(LAYER, "socket_read"), ("network.transport", "udp")]),
            ipv4(&[(LAYER, "socket_enqueued"), TRANSPORT]),
        ];
        let others = others.map(|attributes| point(attributes, spread(-20, 7)));
        let host = point(ipv4(&[(LAYER, "socket_read"), TRANSPORT]), spread(self.host, self.reads));
        let wait = self.wait.map(|wait| point(ipv4(&[TRANSPORT]), spread(wait, self.reads)));
        let rtt = self.rtt.map(|rtt| point(ipv4(&[]), spread(rtt, self.reads)));
        let metric = |descriptor, points: Vec<_>| Metric { descriptor, points };
        let metrics = [
            metric(&DURATION, others.into_iter().chain([host]).collect()),
            metric(&RECEIVE_WAIT, wait.into_iter().collect()),
            metric(&RTT, rtt.into_iter().collect()),
        ];
        let attributes = Attributes::new().with("container.name", self.name).with("service.instance.id", self.name);
        resource_metrics(attributes, metrics.into_iter().filter(|metric| !metric.points.is_empty()).collect())
    }
}

/// Renders the section of round-trip times.
fn section(workloads: &[Reads], width: usize) -> String {
    let mut snapshot = node(Vec::new(), after(2));
    snapshot.resources.extend(workloads.iter().map(Reads::metrics));
    let table = render(None, &snapshot, plain(width));
    let lines = table.lines().skip_while(|line| !line.starts_with("tcp.rtt"));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn host_and_network_delays_in_one_section() {
    let workloads = [
        Reads { name: "fine", reads: 900, host: -14, wait: Some(-15), rtt: Some(-11) },
        Reads { name: "slow-reader", reads: 400, host: -1, wait: Some(-1), rtt: Some(-11) },
        Reads { name: "far-peers", reads: 300, host: -14, wait: Some(-15), rtt: Some(-3) },
        Reads { name: "busy-softirqs", reads: 200, host: -6, wait: Some(-15), rtt: Some(-11) },
        Reads { name: "multipath", reads: 100, host: -14, wait: Some(-15), rtt: None },
    ];
    insta::assert_snapshot!([60, 80, 120].map(|width| section(&workloads, width)).join("\n\n"));
}

#[test]
fn metrics_without_points_have_no_column() {
    let table = section(&[Reads { name: "web", reads: 10, host: -14, wait: None, rtt: Some(-11) }], 80);
    assert!(table.contains("host p99") && !table.contains("wait"), "{table}");
}

#[test]
fn points_that_differ_in_hidden_attributes_are_added() {
    let reads = |interface, tail| {
        let of = [("undercurrent.network.layer", "socket_read"), ("network.transport", "tcp")];
        point(ipv4(&of).with("network.interface.name", interface), spread(tail, 500))
    };
    let metrics = vec![
        Metric { descriptor: &DURATION, points: vec![reads("eth0", -14), reads("eth1", -6)] },
        Metric { descriptor: &RTT, points: vec![point(ipv4(&[]), spread(-11, 1000))] },
    ];
    let mut snapshot = node(Vec::new(), after(2));
    snapshot.resources.push(resource_metrics(Attributes::new().with("container.name", "web"), metrics));
    let table = render(None, &snapshot, plain(100));
    let row = |section: &str| {
        let lines = table.lines().skip_while(|line| !line.starts_with(section));
        lines.take_while(|line| !line.is_empty()).find(|line| line.contains("web")).map(str::to_owned)
    };
    // The median over both transports is the tail of the faster one.
    insta::assert_snapshot!(row("tcp.rtt").expect("a row"), @"  web        container   ipv4    36.3µs     581µs     72.6µs     18.6ms");
}
