//! Compares packets of workloads with the kernel's counters.

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
pub const CGROUP: &str = "undercurrent.workload.cgroup";
/// The attribute that names a container.
const CONTAINER: &str = "container.id";
/// The attribute of the workload for all beyond the limit.
const OVERFLOW: &str = "otel.metric.overflow";

/// The period between two snapshots.
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

    /// Returns the counts after traffic has settled. Asserts that every layer adds up to the kernel's count.
    pub fn end(self) -> Seen {
        let counted = self.wire.settled() - self.counted;
        let after = self.sidecar.snapshot();
        let others = Received::by_others(self.wire) - self.others;
        let seen = Seen { before: self.before, after, version: self.wire.version };
        seen.assert_sums(counted, others);
        seen
    }
}

/// The counts of a period.
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
            // The reader of a datagram may be faster than the tracepoint that reports it. The sidecar then counts
            // a loss.
            let missing = (udp as f64 - seen).max(0.0);
            let unmatched = self.lost_at(layer, "missing_start").min(missing);
            assert_sum(&format!("{layer} udp"), seen + unmatched, udp, others_udp);
        }
        assert_sum("transport tcp", self.all("transport", Some(Transport::Tcp)), counted.tcp, others.tcp);
    }

    /// Returns the packets that a layer measured or lost, over all workloads.
    fn all(&self, layer: &str, transport: Option<Transport>) -> f64 {
        let attributes = attributes(layer, transport, self.version);
        let [after, before] = [&self.after, &self.before].map(|line| amounts(line, &attributes));
        // Other workloads may have ended in between.
        after.iter().map(|(series, amount)| (amount - before.get(series).unwrap_or(&0.0)).max(0.0)).sum()
    }

    /// Returns the alternate that serves a hook.
    pub fn served(&self, hook: &str) -> Option<String> {
        served_by(&self.after, hook)
    }

    /// Returns the layer before the read that knows a socket's workload.
    pub fn arrival(&self) -> &'static str {
        if self.served("transport").as_deref() == Some("cgroup_skb") { "transport" } else { "socket_enqueued" }
    }

    /// Returns the packets that a layer counted for a workload.
    pub fn of(&self, group: &Group, layer: &str, transport: Transport) -> f64 {
        self.of_those(layer, Some(transport), |point| is(point, &group.path))
    }

    /// Returns the packets of a layer in points that satisfy a condition.
    pub fn of_those(&self, layer: &str, transport: Option<Transport>, are: impl Fn(&Point) -> bool) -> f64 {
        let attributes = attributes(layer, transport, self.version);
        let [after, before] = [&self.after, &self.before]
            .map(|line| line.find(DURATION, &attributes).filter(|point| are(point)).map(Point::amount).sum::<f64>());
        after - before
    }

    /// Returns the losses for a reason in the period.
    pub fn lost(&self, reason: &str) -> f64 {
        self.lost_with(&[("undercurrent.reason", reason)])
    }

    /// Returns the losses at a layer for a reason in the period.
    fn lost_at(&self, layer: &str, reason: &str) -> f64 {
        self.lost_with(&[("undercurrent.network.layer", layer), ("undercurrent.reason", reason)])
    }

    fn lost_with(&self, attributes: &[(&str, &str)]) -> f64 {
        let [after, before] = [&self.after, &self.before].map(|line| line.total(LOST, attributes));
        after - before
    }
}

/// Returns the common attributes of a layer's points.
fn attributes(layer: &str, transport: Option<Transport>, version: Version) -> Vec<(&str, &str)> {
    let mut attributes = vec![("undercurrent.network.layer", layer), ("network.type", version.name())];
    attributes.extend(transport.map(|transport| ("network.transport", transport.name())));
    attributes
}

/// Returns the current amount of each series of a layer.
fn amounts<'a>(line: &'a Line, attributes: &'a [(&str, &str)]) -> BTreeMap<(&'a str, &'a Attributes), f64> {
    let lost = line.find(LOST, attributes).filter(|point| REASONS.contains(&&*point.attributes["undercurrent.reason"]));
    let series =
        |point: &'a Point| ((point.resource["service.instance.id"].as_str(), &point.attributes), point.amount());
    line.find(DURATION, attributes).chain(lost).map(series).collect()
}

/// Asserts that the sidecar's count equals the kernel's. On a machine with other programs, these may add packets,
/// and ended namespaces take their counts with them.
fn assert_sum(what: &str, seen: f64, counted: u64, others: u64) {
    eprintln!("{what}, of all: {seen} seen, {counted} counted, others {others}");
    let most = if virtual_machine().is_some() { (counted + others) as f64 } else { f64::INFINITY };
    assert!(
        (counted as f64..=most).contains(&seen),
        "{what}: {seen} seen, {counted} counted, {others} of other programs"
    );
}

/// Returns true if a point belongs to the node.
pub fn is_nodes(point: &Point) -> bool {
    !point.resource.contains_key(CGROUP) && !point.resource.contains_key(CONTAINER) && !is_overflow(point)
}

/// Returns true if a point belongs to the workload for all beyond the limit.
pub fn is_overflow(point: &Point) -> bool {
    point.resource.get(OVERFLOW).is_some_and(|overflow| overflow == "true")
}

/// Returns true if a point belongs to the workload with this path.
pub fn is(point: &Point, path: &Path) -> bool {
    point.resource.get(CGROUP).is_some_and(|of| Path::new(of) == path)
}
