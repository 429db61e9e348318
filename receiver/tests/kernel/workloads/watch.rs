//! Whose packets a sidecar says were received, against what the kernel counted.

use std::path::Path;

use super::{
    super::{
        latency::{Agreement, DURATION, assert_agrees, seen, served_by},
        support::{
            cgroups::Group,
            counters::Received,
            line::{Line, Point},
            sidecar::Sidecar,
            wire::{Version, Wire},
        },
    },
    sockets::Transport,
};

/// The attribute that names a workload by its cgroup.
pub const CGROUP: &str = "undercurrent.workload.cgroup";
/// The attribute of those that have no place of their own.
pub const OVERFLOW: &str = "otel.metric.overflow";

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
        let total = |layer, transport: Option<Transport>| {
            let of = |line| seen(line, layer, transport.map(Transport::name), self.version);
            of(&self.after) - of(&self.before)
        };
        if self.served("ip").is_some() {
            let (counted, others) = (counted.ip_of(self.version), others.ip_of(self.version));
            assert_agrees("ip, of all", total("ip", None), counted, others, Agreement::Exact);
        }
        let layers = ["transport", "socket_enqueued"].into_iter().filter(|layer| self.served(layer).is_some());
        let (udp, others_udp) = (counted.udp_of(self.version), others.udp_of(self.version));
        for layer in layers.filter(|_| udp > 0) {
            let what = format!("{layer} udp, of all");
            assert_agrees(&what, total(layer, Some(Transport::Udp)), udp, others_udp, Agreement::Exact);
        }
        if counted.tcp > 0 {
            let tcp = total("transport", Some(Transport::Tcp));
            assert_agrees("transport tcp, of all", tcp, counted.tcp, others.tcp, Agreement::Exact);
        }
    }

    /// By what a hook is served.
    pub fn served(&self, hook: &str) -> Option<String> {
        served_by(&self.after, hook)
    }

    /// The layer before the read that knows whose a socket is.
    pub fn arrival(&self) -> Option<&'static str> {
        if self.served("transport").as_deref() == Some("cgroup_skb") {
            Some("transport")
        } else if self.served("socket_reader").is_some() {
            Some("socket_enqueued")
        } else {
            // Before 5.11 programs cannot keep who reads a socket.
            None
        }
    }

    /// Packets that a layer counted for a workload.
    pub fn of(&self, group: &Group, layer: &str, transport: Transport) -> f64 {
        self.of_those(layer, Some(transport), |point| is(point, &group.path))
    }

    /// Packets that a layer counted for those that a condition is true of.
    pub fn of_those(&self, layer: &str, transport: Option<Transport>, are: impl Fn(&Point) -> bool) -> f64 {
        let mut attributes = vec![("undercurrent.network.layer", layer), ("network.type", self.version.name())];
        attributes.extend(transport.map(|transport| ("network.transport", transport.name())));
        let [after, before] = [&self.after, &self.before]
            .map(|line| line.find(DURATION, &attributes).filter(|point| are(point)).map(Point::amount).sum::<f64>());
        after - before
    }

    /// What got lost in between, for a reason.
    pub fn lost(&self, reason: &str) -> f64 {
        let attributes = [("undercurrent.reason", reason)];
        let [after, before] = [&self.after, &self.before].map(|line| line.total("undercurrent.lost", &attributes));
        after - before
    }
}

/// Whether a point belongs to the workload with this path.
pub fn is(point: &Point, path: &Path) -> bool {
    point.resource.get(CGROUP).is_some_and(|of| Path::new(of) == path)
}
