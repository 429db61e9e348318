//! Converts a slow packet to spans.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, ReceivePoint},
    slow::{SlowPacket, flag},
};
use zerocopy::IntoBytes as _;

use super::{settings::Addresses, times::Times};
use crate::{
    attributes,
    telemetry::{Attributes, SpanContext, SpanData, UnixNanos, finished_span, new_context},
    text::shortened,
};

/// The name of the span of a packet.
pub const NAME: &str = "network receive";
/// The name of the step from the sending by this node to the receive timestamp.
const SEND: &str = "network send";
/// The names of the states of a reader, as children of the step `socket_read`.
const ASLEEP: &str = "reader: asleep";
const RUNNABLE: &str = "reader: waiting for a CPU";
const RUNNING: &str = "reader: running";
/// Longest name of a process: 16 bytes, all of them escaped.
const PROCESS_NAME: usize = 96;
/// The reason why a packet has a span: `slow` or `uniform`.
const SELECTION: &str = "undercurrent.selection";

/// A packet with its receive point.
pub struct Packet<'a> {
    /// The event.
    pub event: &'a SlowPacket,
    /// The last layer.
    pub point: ReceivePoint,
    /// The times.
    pub times: Times,
}

impl Packet<'_> {
    /// Returns the layers that the packet reached, in order, each with the time since the layer before.
    fn steps(&self) -> impl Iterator<Item = (Layer, UnixNanos, UnixNanos)> {
        let early = [Layer::Ip, Layer::Transport, Layer::SocketEnqueued].into_iter().zip(self.times.layers);
        let early = early.filter_map(|(layer, time)| Some((layer, time?)));
        // Without a record, nothing is known about the steps.
        let last = (self.event.flags & flag::RECORDED != 0).then_some((self.point.layer, self.times.end));
        consecutive(self.times.start, early.chain(last))
    }

    /// Returns the layer before which the packet waited longest; `None` if its path is unknown.
    pub fn slowest(&self) -> Option<Layer> {
        self.steps().max_by_key(|(_, start, end)| end.0 - start.0).map(|(layer, ..)| layer)
    }

    /// Returns the span of the packet with these attributes, then a child for each step.
    pub fn spans(&self, context: &SpanContext, parent: &SpanContext, attributes: &Attributes) -> Vec<SpanData> {
        let child = |parent: &SpanContext, name, times, attributes: &Attributes| {
            finished_span(new_context(parent), parent, name, times, attributes)
        };
        let of_layer = |layer| Attributes::new().with(attributes::LAYER.key, attributes::layer(layer));
        let received = self.times.received();
        let (start, end) = (self.times.sent.unwrap_or(received), self.times.end);
        let mut spans = vec![finished_span(context.clone(), parent, NAME, [start, end], attributes)];
        if self.times.sent.is_some() {
            spans.push(child(context, SEND, [start, received], &Attributes::new()));
        }
        if self.times.forwarded.is_some() {
            spans.push(child(context, step_name(Layer::Host), [received, self.times.start], &of_layer(Layer::Host)));
        }
        for (layer, start, end) in self.steps() {
            let step = child(context, step_name(layer), [start, end], &of_layer(layer));
            let states = if layer == Layer::SocketRead { self.reader_states(start) } else { Vec::new() };
            let of = step.span_context.clone();
            spans.push(step);
            let states =
                states.into_iter().map(|(name, start, end)| child(&of, name, [start, end], &Attributes::new()));
            spans.extend(states);
        }
        spans
    }

    /// Returns the states of the reader since a packet's arrival in the queue; none if its wakeup is unknown.
    fn reader_states(&self, enqueued: UnixNanos) -> Vec<(&'static str, UnixNanos, UnixNanos)> {
        let Some([woken, running]) = self.times.reader else { return Vec::new() };
        // States before the arrival do not count.
        let [woken, running] = [woken, running].map(|time| time.max(enqueued));
        let states = [(ASLEEP, enqueued, woken), (RUNNABLE, woken, running), (RUNNING, running, self.times.end)];
        states.into_iter().filter(|(_, start, end)| start < end).collect()
    }

    /// Returns the attributes of the span of the packet.
    pub fn attributes(&self, addresses: Addresses) -> Attributes {
        let Self { event, point, .. } = self;
        let mut attributes = Attributes::new();
        if let Some(transport) = point.transport {
            attributes.set(attributes::TRANSPORT.key, attributes::transport(transport));
        }
        attributes.set(attributes::NETWORK.key, attributes::network(point.version));
        let keys = [("network.local.address", "network.local.port"), ("network.peer.address", "network.peer.port")];
        // The local address is the node's or the workload's own.
        let policies = [if addresses == Addresses::None { Addresses::None } else { Addresses::Full }, addresses];
        let ends = event.addresses.iter().zip(event.ports).zip(policies);
        for ((address_key, port_key), ((address, port), policy)) in keys.into_iter().zip(ends) {
            let address = ip_address(address.as_bytes(), point.version);
            let Some(text) = policy.peer(address).filter(|_| !address.is_unspecified()) else { continue };
            attributes.set(address_key, text);
            attributes.set(port_key, i64::from(port));
        }
        if event.process != 0 {
            attributes.set("process.pid", i64::from(event.process));
            let name = event.process_name.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            attributes.set("process.executable.name", shortened(&name, PROCESS_NAME).into_owned());
        }
        if let Some(layer) = self.slowest() {
            attributes.set(attributes::LAYER.key, attributes::layer(layer));
        }
        attributes.set(SELECTION, if event.flags & flag::UNIFORM == 0 { "slow" } else { "uniform" });
        attributes
    }
}

/// Returns each layer with the time of the layer before it and its own. A layer with an earlier time than the one before it took
/// no time.
fn consecutive(
    start: UnixNanos,
    layers: impl Iterator<Item = (Layer, UnixNanos)>,
) -> impl Iterator<Item = (Layer, UnixNanos, UnixNanos)> {
    let mut before = start;
    layers.map(move |(layer, time)| {
        let start = before;
        before = time.max(before);
        (layer, start, before)
    })
}

/// Returns the name of the span of a step.
const fn step_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Host => "network receive: host",
        Layer::Ip => "network receive: ip",
        Layer::Transport => "network receive: transport",
        Layer::SocketEnqueued => "network receive: socket_enqueued",
        Layer::SocketRead => "network receive: socket_read",
    }
}

fn ip_address(bytes: &[u8], version: IpVersion) -> IpAddr {
    let mut whole = [0; 16];
    whole.copy_from_slice(bytes);
    match version {
        IpVersion::Ipv4 => Ipv4Addr::new(whole[0], whole[1], whole[2], whole[3]).into(),
        IpVersion::Ipv6 => Ipv6Addr::from(whole).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_ends_before_it_begins() {
        let layers = [(Layer::Ip, 5), (Layer::Transport, 20), (Layer::SocketRead, 15)];
        let steps = consecutive(UnixNanos(10), layers.into_iter().map(|(layer, time)| (layer, UnixNanos(time))));
        let steps: Vec<_> = steps.map(|(layer, start, end)| (layer, start.0, end.0)).collect();
        assert_eq!(steps, [(Layer::Ip, 10, 10), (Layer::Transport, 10, 20), (Layer::SocketRead, 20, 20)]);
    }
}
