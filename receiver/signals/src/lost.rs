//! `undercurrent.lost`: events that are missing from the measurements of a signal, by reason; and the facts that determine which
//! events can be lost.

use undercurrent_ebpf::abi::latency::Layer;

use super::{
    Settings,
    attributes::{INTERFACE, ROLE},
    distinct, loss_reasons,
};
use crate::{
    kernel::{
        Kernel,
        hooks::{self, Hook},
    },
    options::{Filter, Packets},
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Point, UnixNanos, View},
};

const SIGNAL: &str = "undercurrent.signal";
/// The reason why an event is missing from a measurement.
pub const REASON: &str = "undercurrent.reason";
/// The name of a hook.
pub const HOOK: &str = "undercurrent.hook";
/// The kind of an exporter.
pub const COMPONENT_TYPE: &str = "otel.component.type";

/// Events that are missing from a measurement, or exceed the range of a histogram.
pub static LOST: Descriptor = Descriptor {
    name: "undercurrent.lost",
    unit: "{event}",
    description: "Events that could not be measured or attributed to a workload, by reason.",
    instrument: Instrument::Counter,
    attributes: &[
        AttributeKey::derived(SIGNAL, || loss_reasons().map(|(signal, _)| signal).collect()),
        AttributeKey::derived(REASON, || distinct(loss_reasons().flat_map(|(_, reasons)| reasons))),
        AttributeKey::open("undercurrent.network.layer", "for packets on the receive path"),
        AttributeKey::open("undercurrent.network.stage", "for packets on the transmit path"),
        AttributeKey::open("network.transport", "for packets"),
        AttributeKey::open("network.type", "for packets"),
        AttributeKey::open(ROLE.key, "for transactions of TCP connections"),
        AttributeKey::open(INTERFACE.key, "for NICs"),
        AttributeKey::open("undercurrent.softirq", "for softirq raises"),
        AttributeKey::open(HOOK, "for programs that the kernel skipped (`recursion`)"),
        AttributeKey::open(COMPONENT_TYPE, "for snapshots and spans"),
    ],
    view: View::Notice { normal: &[] },
};

/// Returns a point of [`LOST`].
pub fn lost(signal: &'static str, reason: &'static str, attributes: Attributes, count: u64, start: UnixNanos) -> Point {
    Point { attributes: attributes.with(SIGNAL, signal).with(REASON, reason), start, data: Data::count(count) }
}

/// The facts about the attached hooks and the settings that determine which events can be lost.
#[derive(Clone, Copy, Debug)]
pub struct LossConditions {
    /// Packets are filtered.
    pub filtered: bool,
    /// Packets are grouped.
    pub grouped: bool,
    /// TCP data that waited for an earlier segment is excluded from `socket_enqueued`.
    pub blocked_at_arrival: bool,
    /// TCP data that waited for an earlier segment is excluded from `socket_read`.
    pub blocked_at_read: bool,
    /// A reader can take a datagram before the program of `socket_enqueued` runs.
    pub read_before_enqueued: bool,
    /// The CPU time of socket calls is measured exactly.
    pub socket_calls: bool,
}

impl LossConditions {
    /// The conditions under which every loss is possible.
    pub const ANY: Self = Self {
        filtered: true,
        grouped: true,
        blocked_at_arrival: true,
        blocked_at_read: true,
        read_before_enqueued: true,
        socket_calls: true,
    };

    /// Returns the conditions of attached hooks.
    #[must_use]
    pub fn new(kernel: &Kernel, settings: &Settings, packets: &Packets) -> Self {
        let by_tracepoint = kernel.is_served_by(&hooks::SOCKET_ENQUEUED, hooks::TRACEPOINT);
        let excludes = |layer, hook: &Hook| {
            settings.latency.excludes_blocked(layer) && kernel.counts_reordered() && kernel.serves(hook)
        };
        Self {
            filtered: packets.filter != Filter::default(),
            grouped: !packets.group.by.is_empty(),
            // Only the tracepoint runs after the kernel moved out-of-order segments to the queue.
            blocked_at_arrival: by_tracepoint && excludes(Layer::SocketEnqueued, &hooks::SOCKET_ENQUEUED),
            blocked_at_read: excludes(Layer::SocketRead, &hooks::SOCKET_READ),
            read_before_enqueued: by_tracepoint,
            socket_calls: settings.network_cpu.measures_calls(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    const NONE: LossConditions = LossConditions {
        filtered: false,
        grouped: false,
        blocked_at_arrival: false,
        blocked_at_read: false,
        read_before_enqueued: false,
        socket_calls: false,
    };

    fn reasons(signal: &str, on: LossConditions) -> Vec<&'static str> {
        let entry = REGISTRY.iter().find(|entry| entry.name == signal).expect("a signal");
        (entry.losses)(&on)
    }

    #[test]
    fn a_loss_requires_its_condition() {
        for (on, reason) in [
            (LossConditions { filtered: true, ..NONE }, "not_filterable"),
            (LossConditions { grouped: true, ..NONE }, "group_limit"),
            (LossConditions { blocked_at_arrival: true, ..NONE }, "head_of_line"),
            (LossConditions { blocked_at_read: true, ..NONE }, "head_of_line"),
            (LossConditions { read_before_enqueued: true, ..NONE }, "missing_start"),
        ] {
            assert!(reasons("latency", on).contains(&reason), "{on:?}");
            assert!(!reasons("latency", NONE).contains(&reason), "{reason}");
        }
        assert_eq!(reasons("transmit", NONE), ["no_timestamp", "negative", "missing_start", "above_range"]);
    }

    #[test]
    fn every_loss_is_possible_under_all_conditions() {
        for entry in REGISTRY {
            let (any, none) = ((entry.losses)(&LossConditions::ANY), (entry.losses)(&NONE));
            assert!(none.iter().all(|reason| any.contains(reason)), "{}: {none:?}", entry.name);
        }
    }
}
