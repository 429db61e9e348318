//! Whose packets a sidecar says were received, against what the kernel counted.

use std::{collections::BTreeMap, path::Path};

use super::{
    super::{
        latency::{DURATION, LOST, REASONS, served_by},
        support::{
            cgroups::Group,
            counters::Received,
            line::{Attributes, Line, Point},
            sidecar::Sidecar,
            surroundings::virtual_machine,
            wire::{Version, Wire},
        },
    },
    sockets::Transport,
};

/// The attribute that names a workload by its cgroup.
const CGROUP: &str = "undercurrent.workload.cgroup";
/// The attribute that names a container.
const CONTAINER: &str = "container.id";
/// The attribute of those that have no place of their own.
const OVERFLOW: &str = "otel.metric.overflow";

/// From one snapshot to another.
pub struct Watch<'a> {
    sidecar: &'a Sidecar,
    wire: &'a Wire,
    before: Line,
    counted: Received,
    others: Received,
}

impl<'a> Watch<'a> {
    pub fn begin(sidecar: &'a Sidecar, wire: &'a Wire) -> Self {
        let others = Received::by_others(wire);
        Self { sidecar, wire, before: sidecar.snapshot(), counted: wire.received(), others }
    }

    /// The figures, once nothing comes any more. At every layer they add up to what the kernel counted.
    pub fn end(self) -> Seen {
        let counted = self.wire.settled() - self.counted;
        let after = self.sidecar.snapshot();
        let others = Received::by_others(self.wire) - self.others;
        let seen = Seen { before: self.before, after, version: self.wire.version };
        seen.assert_sums(counted, others);
        seen
    }
}

/// What was seen in between.
pub struct Seen {
    before: Line,
    pub after: Line,
    version: Version,
}

impl Seen {
    fn assert_sums(&self, counted: Received, others: Received) {
        if self.served("ip").is_some() {
            assert_sum("ip", self.all("ip", None), counted.ip_of(self.version), others.ip_of(self.version));
        }
        let (udp, others_udp) = (counted.udp_of(self.version), others.udp_of(self.version));
        for layer in ["transport", "socket_enqueued"].into_iter().filter(|layer| self.served(layer).is_some()) {
            let seen = self.all(layer, Some(Transport::Udp));
            // The reader of a datagram may be faster than the tracepoint that reports it, and then the sidecar counts a loss.
            let missing = (udp as f64 - seen).max(0.0);
            let unmatched = self.lost_at(layer, "missing_start").min(missing);
            assert_sum(&format!("{layer} udp"), seen + unmatched, udp, others_udp);
        }
        assert_sum("transport tcp", self.all("transport", Some(Transport::Tcp)), counted.tcp, others.tcp);
    }

    /// Packets that a layer saw, whoever they belong to, measured or lost.
    fn all(&self, layer: &str, transport: Option<Transport>) -> f64 {
        let attributes = attributes(layer, transport, self.version);
        let [after, before] = [&self.after, &self.before].map(|line| amounts(line, &attributes));
        // Workloads of others may have ended in between.
        after.iter().map(|(series, amount)| (amount - before.get(series).unwrap_or(&0.0)).max(0.0)).sum()
    }

    /// By what a hook is served.
    pub fn served(&self, hook: &str) -> Option<String> {
        served_by(&self.after, hook)
    }

    /// The layer before the read that knows whose a socket is.
    pub fn arrival(&self) -> &'static str {
        if self.served("transport").as_deref() == Some("cgroup_skb") { "transport" } else { "socket_enqueued" }
    }

    /// Packets that a layer counted for a workload.
    pub fn of(&self, group: &Group, layer: &str, transport: Transport) -> f64 {
        self.of_those(layer, Some(transport), |point| is(point, &group.path))
    }

    /// Packets that a layer counted for those that a condition is true of.
    pub fn of_those(&self, layer: &str, transport: Option<Transport>, are: impl Fn(&Point) -> bool) -> f64 {
        let attributes = attributes(layer, transport, self.version);
        let [after, before] = [&self.after, &self.before]
            .map(|line| line.find(DURATION, &attributes).filter(|point| are(point)).map(Point::amount).sum::<f64>());
        after - before
    }

    /// Losses for a reason between the two snapshots.
    pub fn lost(&self, reason: &str) -> f64 {
        self.lost_with(&[("undercurrent.reason", reason)])
    }

    /// Losses at a layer for a reason between the two snapshots.
    fn lost_at(&self, layer: &str, reason: &str) -> f64 {
        self.lost_with(&[("undercurrent.network.layer", layer), ("undercurrent.reason", reason)])
    }

    fn lost_with(&self, attributes: &[(&str, &str)]) -> f64 {
        let [after, before] = [&self.after, &self.before].map(|line| line.total(LOST, attributes));
        after - before
    }
}

/// What the points of a layer have in common.
fn attributes(layer: &str, transport: Option<Transport>, version: Version) -> Vec<(&str, &str)> {
    let mut attributes = vec![("undercurrent.network.layer", layer), ("network.type", version.name())];
    attributes.extend(transport.map(|transport| ("network.transport", transport.name())));
    attributes
}

/// What every series of a layer has by now.
fn amounts<'a>(line: &'a Line, attributes: &'a [(&str, &str)]) -> BTreeMap<(&'a str, &'a Attributes), f64> {
    let lost = line.find(LOST, attributes).filter(|point| REASONS.contains(&&*point.attributes["undercurrent.reason"]));
    let series =
        |point: &'a Point| ((point.resource["service.instance.id"].as_str(), &point.attributes), point.amount());
    line.find(DURATION, attributes).chain(lost).map(series).collect()
}

/// What was seen is what the kernel counted, to the packet. On a machine with other programs these add to it, and their
/// namespaces come and go with what was counted for them.
fn assert_sum(what: &str, seen: f64, counted: u64, others: u64) {
    eprintln!("{what}, of all: {seen} seen, {counted} counted, others {others}");
    let most = if virtual_machine().is_some() { (counted + others) as f64 } else { f64::INFINITY };
    assert!((counted as f64..=most).contains(&seen), "{what}: {seen} were seen of {counted}, and {others} of others");
}

/// Whether a point belongs to the node.
pub fn is_nodes(point: &Point) -> bool {
    !point.resource.contains_key(CGROUP) && !point.resource.contains_key(CONTAINER) && !is_overflow(point)
}

/// Whether a point belongs to those that have no place of their own.
pub fn is_overflow(point: &Point) -> bool {
    point.resource.get(OVERFLOW).is_some_and(|overflow| overflow == "true")
}

/// Whether a point belongs to the workload with this path.
pub fn is(point: &Point, path: &Path) -> bool {
    point.resource.get(CGROUP).is_some_and(|of| Path::new(of) == path)
}
