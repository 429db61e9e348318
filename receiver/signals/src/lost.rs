//! `undercurrent.lost`: events that are missing from the measurements of a signal, by reason.

use super::{attributes::INTERFACE, distinct, loss_reasons};
use crate::telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Point, UnixNanos, View};

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
