//! Snapshots for tests of outputs.

use std::sync::Arc;

use opentelemetry::trace::{TraceFlags, TraceState};
use proptest::prelude::*;

use crate::telemetry::{
    AttributeKey, Attributes, Data, Descriptor, ExponentialHistogram, Figure, FigureKind, Instrument, Metric, Point,
    Resource, ResourceMetrics, ResourceSpans, Side, Snapshot, SpanBatch, SpanContext, UnixNanos, View, finished_span,
};

const fn key(key: &'static str, values: &'static [&'static str]) -> AttributeKey {
    AttributeKey::listed(key, values)
}

pub(super) static DURATION: Descriptor = Descriptor {
    name: "undercurrent.network.receive.duration",
    unit: "s",
    description: "Time from a packet's receive timestamp to each layer.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[
        key("undercurrent.network.layer", &["ip", "transport", "socket_enqueued", "socket_read"]),
        key("network.transport", &["tcp", "udp"]),
        key("network.type", &["ipv4", "ipv6"]),
    ],
    view: View::Section,
};

pub(super) static WAIT: Descriptor = Descriptor {
    name: "undercurrent.softirq.wait.duration",
    unit: "s",
    description: "Time from a softirq's raise to its run.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[key("undercurrent.softirq", &["net_rx", "net_tx"])],
    view: View::Section,
};

pub(super) static RTT: Descriptor = Descriptor {
    name: "undercurrent.tcp.rtt",
    unit: "s",
    description: "TCP's round-trip time when data was read.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[key("network.type", &["ipv4", "ipv6"])],
    view: View::Beside(&[
        Side {
            heading: "host",
            metric: "undercurrent.network.receive.duration",
            attributes: &[("undercurrent.network.layer", "socket_read"), ("network.transport", "tcp")],
        },
        Side {
            heading: "wait",
            metric: "undercurrent.network.receive.wait.duration",
            attributes: &[("network.transport", "tcp")],
        },
    ]),
};

pub(super) static ENERGY: Descriptor = Descriptor {
    name: "undercurrent.energy",
    unit: "J",
    description: "Energy, divided over workloads.",
    instrument: Instrument::Counter,
    attributes: &[key("undercurrent.energy.use", &["network", "compute", "idle"])],
    view: View::Summary(&[
        Figure {
            heading: "power",
            spare: 0,
            metric: "undercurrent.energy",
            attributes: &[],
            kind: FigureKind::Rate("J"),
        },
        Figure {
            heading: "network",
            spare: 0,
            metric: "undercurrent.energy",
            attributes: &[("undercurrent.energy.use", "network")],
            kind: FigureKind::Rate("J"),
        },
        Figure {
            heading: "per GB received",
            spare: 2,
            metric: "undercurrent.energy",
            attributes: &[],
            kind: FigureKind::PerGigabyte("J", "undercurrent.network.receive.io"),
        },
        Figure {
            heading: "of one CPU",
            spare: 1,
            metric: "undercurrent.cpu.time",
            attributes: &[],
            kind: FigureKind::Share,
        },
        Figure {
            heading: "latency p99",
            spare: 2,
            metric: "undercurrent.network.receive.duration",
            attributes: &[("undercurrent.network.layer", "socket_read")],
            kind: FigureKind::Quantile(0.99, "s"),
        },
    ]),
};

pub(super) static BYTES: Descriptor = Descriptor {
    name: "undercurrent.network.receive.io",
    unit: "By",
    description: "Received bytes.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Hidden,
};

pub(super) static RECEIVE_WAIT: Descriptor = Descriptor {
    name: "undercurrent.network.receive.wait.duration",
    unit: "s",
    description: "Time in the socket's queue.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[key("network.transport", &["tcp", "udp"]), key("network.type", &["ipv4", "ipv6"])],
    view: View::Section,
};

pub(super) static CPU: Descriptor = Descriptor {
    name: "undercurrent.network.cpu.time",
    unit: "s",
    description: "CPU time of the network stack.",
    instrument: Instrument::Counter,
    attributes: &[
        key("undercurrent.network.event", &["receive_softirq", "transmit_softirq"]),
        AttributeKey::open("cpu.logical_number", "0, 1, ...").opt_in(),
    ],
    view: View::Section,
};

pub(super) static CPU_TIME: Descriptor = Descriptor {
    name: "undercurrent.cpu.time",
    unit: "s",
    description: "CPU time, by the scheduler's account.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Section,
};

const PER_CPU: &[AttributeKey] = &[key("cpu.logical_number", &[])];

const fn softnet(name: &'static str, unit: &'static str) -> Descriptor {
    let description = "What the kernel counts where packets are taken from the device.";
    Descriptor { name, unit, description, instrument: Instrument::Counter, attributes: PER_CPU, view: View::Section }
}

pub(super) static PROCESSED: Descriptor = softnet("undercurrent.softnet.processed", "{packet}");
pub(super) static DROPPED: Descriptor = softnet("undercurrent.softnet.dropped", "{packet}");
pub(super) static SQUEEZED: Descriptor = softnet("undercurrent.softnet.squeezed", "{run}");

pub(super) static LOST: Descriptor = Descriptor {
    name: "undercurrent.lost",
    unit: "{packet}",
    description: "Packets in no histogram, by reason.",
    instrument: Instrument::Counter,
    attributes: &[key("undercurrent.reason", &["no_timestamp", "negative"])],
    view: View::Notice { normal: &[] },
};

pub(super) static HOOK: Descriptor = Descriptor {
    name: "undercurrent.hook.status",
    unit: "1",
    description: "1 for the current state of a hook.",
    instrument: Instrument::UpDownCounter,
    attributes: &[
        key("undercurrent.hook", &[]),
        key("undercurrent.hook.state", &["healthy", "degraded", "unavailable"]),
    ],
    view: View::Notice { normal: &["healthy"] },
};

pub(super) static RATIO: Descriptor = Descriptor {
    name: "undercurrent.sampling.ratio",
    unit: "1",
    description: "Fraction of packets that are measured.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

pub(super) static EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.metric_data_point.exported",
    unit: "{data_point}",
    description: "Points with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[key("otel.component.type", &["json"]), key("error.type", &[])],
    view: View::Failures,
};

pub(super) static THREADS: Descriptor = Descriptor {
    name: "undercurrent.threads",
    unit: "{thread}",
    description: "Threads.",
    instrument: Instrument::UpDownCounter,
    attributes: &[],
    view: View::Section,
};

pub(super) const SECOND: u64 = 1_000_000_000;
/// 2026-01-01T00:00:00Z.
pub(super) const START: UnixNanos = UnixNanos(1_767_225_600 * SECOND);

pub(super) fn after(seconds: u64) -> UnixNanos {
    UnixNanos(START.0 + seconds * SECOND)
}

pub(super) fn point(attributes: Attributes, data: Data) -> Point {
    Point { attributes, start: START, data }
}

pub(super) fn node(metrics: Vec<Metric>, time: UnixNanos) -> Snapshot {
    let attributes =
        Attributes::new().with("service.name", "undercurrent").with("host.name", "node-1").with("os.type", "linux");
    Snapshot { time, resources: vec![resource_metrics(attributes, metrics)] }
}

pub(super) fn resource_metrics(attributes: Attributes, metrics: Vec<Metric>) -> ResourceMetrics {
    ResourceMetrics { resource: Arc::new(Resource { attributes }), metrics }
}

pub(super) fn histogram(offset: i32, buckets: Vec<u64>, sum: f64) -> ExponentialHistogram {
    ExponentialHistogram {
        scale: 2,
        zero_count: 0,
        zero_threshold: (-24_f64).exp2(),
        offset,
        buckets,
        sum,
        exemplars: Vec::new(),
    }
}

/// Returns a snapshot of one counter with this number of points.
pub(super) fn lost(points: i64, time: UnixNanos) -> Arc<Snapshot> {
    let points =
        (0..points).map(|n| point(Attributes::new().with("undercurrent.reason", n), Data::Integer(n))).collect();
    Arc::new(node(vec![Metric { descriptor: &LOST, points }], time))
}

fn data(instrument: Instrument) -> BoxedStrategy<Data> {
    prop_oneof![9 => recorded(instrument), 1 => Just(Data::NoRecordedValue)].boxed()
}

fn recorded(instrument: Instrument) -> BoxedStrategy<Data> {
    match instrument {
        Instrument::ExponentialHistogram | Instrument::Histogram => {
            (any::<i8>(), prop::collection::vec(0..u64::MAX / 1000, 0..40), 0.0..1e9, any::<u32>())
                .prop_map(|(offset, buckets, sum, zero)| {
                    let histogram = histogram(offset.into(), buckets, sum);
                    Data::Histogram(ExponentialHistogram { zero_count: zero.into(), ..histogram })
                })
                .boxed()
        }
        Instrument::Gauge => (-1e9..1e9).prop_map(Data::Double).boxed(),
        Instrument::Counter => (0..i64::MAX).prop_map(Data::Integer).boxed(),
        Instrument::UpDownCounter => any::<i64>().prop_map(Data::Integer).boxed(),
    }
}

fn metric(descriptor: &'static Descriptor) -> impl Strategy<Value = Metric> {
    // Distinct sets of attributes, unordered.
    prop::collection::hash_map((".{0,6}", any::<i16>()), data(descriptor.instrument), 0..12).prop_map(move |points| {
        let points = points.into_iter().map(|((text, number), data)| {
            point(Attributes::new().with("text", text).with("number", i64::from(number)).with("flag", true), data)
        });
        Metric { descriptor, points: points.collect() }
    })
}

fn resource() -> impl Strategy<Value = Resource> {
    (".{0,20}", prop::collection::vec(".{0,9}", 0..3)).prop_map(|(name, tags)| Resource {
        attributes: Attributes::new().with("container.name", name).with("container.image.tags", tags),
    })
}

prop_compose! {
    /// Generates snapshots of a few resources.
    pub(super) fn snapshots()(
        resources in prop::collection::vec(
            (resource(), metric(&DURATION), metric(&LOST), metric(&RATIO), metric(&THREADS)), 0..4),
        seconds in 0..1_000_000_u64,
    ) -> Snapshot {
        let resources = resources.into_iter().map(|(resource, duration, lost, hook, threads)| ResourceMetrics {
            resource: Arc::new(resource),
            metrics: vec![duration, lost, hook, threads],
        });
        Snapshot { time: after(seconds), resources: resources.collect() }
    }
}

/// Returns a batch with spans of one resource, from one second to two seconds after the start.
pub(super) fn batch(spans: usize) -> SpanBatch {
    let span = |number: usize| {
        let ids = (1_u128.into(), (number as u64 + 1).into());
        let context = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::NONE);
        let attributes = Attributes::new().with("network.transport", "tcp");
        finished_span(context, &SpanContext::NONE, "network receive", [after(1), after(2)], &attributes)
    };
    let resource = Arc::new(Resource { attributes: Attributes::new().with("host.name", "node") });
    SpanBatch::new(vec![ResourceSpans { resource, spans: (0..spans).map(span).collect() }])
}
