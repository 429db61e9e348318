//! The metrics of `network_cpu` and their points.

use undercurrent_ebpf::abi::{cost::CostKind, softirq::Softirq};

use super::super::attributes;
use crate::telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Point, UnixNanos, View};

const EVENT: &str = "undercurrent.network.event";
const ATTRIBUTION: &str = "undercurrent.attribution";
const THREAD: &str = "undercurrent.io_uring.thread";

/// Measured for one owner.
pub const DIRECT: &str = "direct";
/// Divided over the receivers of packets.
pub const SHARED: &str = "shared";

pub static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.network.cpu.time",
    unit: "s",
    description: "CPU time of network softirqs, and of socket calls if they are measured exactly.",
    instrument: Instrument::Counter,
    attributes: &[
        AttributeKey::listed(EVENT, &["receive_softirq", "transmit_softirq", "socket_receive", "socket_send"]),
        AttributeKey::listed(ATTRIBUTION, &[DIRECT, SHARED]),
        attributes::cpu(true),
    ],
    view: View::Section,
};

pub static IO_URING_TIME: Descriptor = Descriptor {
    name: "undercurrent.io_uring.cpu.time",
    unit: "s",
    description: "CPU time of io_uring's threads, which do network and file I/O. It contains their socket calls.",
    instrument: Instrument::Counter,
    attributes: &[AttributeKey::listed(THREAD, &["worker", "sqpoll"])],
    view: View::Section,
};

/// Returns the value of `undercurrent.network.event` of a softirq.
pub const fn softirq(softirq: Softirq) -> &'static str {
    match softirq {
        Softirq::Transmit => "transmit_softirq",
        Softirq::Receive => "receive_softirq",
    }
}

/// Returns the point of an event's time in nanoseconds.
pub fn of_event(event: &'static str, attribution: &'static str, start: UnixNanos, nanoseconds: u64) -> Point {
    let attributes = Attributes::new().with(EVENT, event).with(ATTRIBUTION, attribution);
    Point { attributes, start, data: seconds(nanoseconds) }
}

/// Returns the metric of work that is charged to a workload, and its point.
pub fn charged(kind: CostKind, start: UnixNanos, nanoseconds: u64) -> (&'static Descriptor, Point) {
    let event = |event, attribution| (&CPU_TIME, of_event(event, attribution, start, nanoseconds));
    let thread = |thread| {
        let attributes = Attributes::new().with(THREAD, thread);
        (&IO_URING_TIME, Point { attributes, start, data: seconds(nanoseconds) })
    };
    match kind {
        CostKind::ReceiveSoftirq => event(softirq(Softirq::Receive), SHARED),
        CostKind::SocketReceive => event("socket_receive", DIRECT),
        CostKind::SocketSend => event("socket_send", DIRECT),
        CostKind::IoUringWorker => thread("worker"),
        CostKind::IoUringSqpoll => thread("sqpoll"),
    }
}

fn seconds(nanoseconds: u64) -> Data {
    Data::Double(nanoseconds as f64 / 1e9)
}
