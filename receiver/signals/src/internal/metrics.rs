//! The metrics of internal telemetry.

use crate::{
    Settings, all_hooks, distinct,
    kernel::plan::Status,
    lost::{self, HOOK, LOST},
    options::Output,
    planned_maps,
    telemetry::{AttributeKey, Descriptor, Exporters, Instrument, View},
};

/// The state of a hook.
pub const STATE: &str = "undercurrent.hook.state";
/// The alternate that serves a hook.
pub const BY: &str = "undercurrent.alternate";
/// The name of a map.
pub const MAP: &str = "undercurrent.map";
/// The values of `undercurrent.reason` that internal telemetry counts.
pub const LOSSES: [&str; 4] = [RECURSION, LATE_TICK, SNAPSHOT_REPLACED, SPAN_QUEUE_FULL];
/// The reason for programs that the kernel skipped, because they or other kprobe programs were already running on the
/// CPU.
pub const RECURSION: &str = "recursion";
/// The reason for a snapshot that was late.
pub const LATE_TICK: &str = "late_tick";
/// The reason for a snapshot that a newer one replaced before its delivery.
pub const SNAPSHOT_REPLACED: &str = "snapshot_replaced";
/// The reason for spans beyond the queue of an output.
pub const SPAN_QUEUE_FULL: &str = "span_queue_full";

fn hook_names() -> Vec<&'static str> {
    all_hooks().into_iter().map(|hook| hook.name).collect()
}

/// Returns the names of alternates, and of hooks that replace other hooks.
fn alternates() -> Vec<&'static str> {
    let of_hooks = all_hooks().into_iter().flat_map(|hook| {
        let own = hook.alternates.iter().map(|alternate| alternate.name);
        own.chain(hook.within.map(|within| within.hook.name))
    });
    distinct(of_hooks)
}

fn map_names() -> Vec<&'static str> {
    planned_maps(&Settings::default()).map(|(map, _)| map.name).collect()
}

/// Present only for failed exports.
pub const ERROR_TYPE: AttributeKey = AttributeKey::open(
    "error.type",
    "absent for success; the status of gRPC or HTTP, the error of a connection or file, `timeout`, or `rejected`",
);
/// The kind of the exporter.
pub const COMPONENT_TYPE: AttributeKey = AttributeKey::derived(lost::COMPONENT_TYPE, || {
    let otlp = [Exporters::OTLP_GRPC, Exporters::OTLP_HTTP, Exporters::OTLP_HTTP_JSON];
    let of_signals = |exporters: Exporters| [exporters.metrics, exporters.spans, exporters.logs];
    let others = Output::KINDS.into_iter().filter(|output| *output != Output::OTLP);
    otlp.into_iter().flat_map(of_signals).chain(others).chain([Exporters::LISTEN]).collect()
});

/// The version, as a label to join and compare.
pub const VERSION: &str = "undercurrent.version";

/// The heartbeat.
pub static BUILD_INFO: Descriptor = Descriptor {
    name: "undercurrent.build.info",
    unit: "1",
    description: "Always 1, in every snapshot, with the version of the sidecar.",
    instrument: Instrument::UpDownCounter,
    attributes: &[AttributeKey::open(VERSION, "the version of the sidecar")],
    view: View::Hidden,
};

/// The total of the losses.
pub static LOST_EVENTS: Descriptor = Descriptor {
    name: "undercurrent.lost.events",
    unit: "{event}",
    description: "The sum of the node's points of `undercurrent.lost`, which exists before the first loss.",
    instrument: Instrument::Counter,
    attributes: &[],
    view: View::Hidden,
};

/// The share of measured packets.
pub static SAMPLING_RATIO: Descriptor = Descriptor {
    name: "undercurrent.sampling.ratio",
    unit: "1",
    description: "Fraction of packets that are measured; a measured packet counts as 1/ratio packets.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

/// The states of hooks.
pub static HOOK_STATUS: Descriptor = Descriptor {
    name: "undercurrent.hook.status",
    unit: "1",
    description: "1 for the current state of a hook, 0 for its other states.",
    instrument: Instrument::UpDownCounter,
    attributes: &[
        AttributeKey::derived(HOOK, hook_names).or("a function of `extra_layers`"),
        AttributeKey::derived(STATE, || Status::OF_HOOKS.map(Status::as_str).to_vec()),
        AttributeKey::derived(BY, alternates),
    ],
    view: View::Notice { normal: &["healthy"] },
};

/// The memory of kernel maps.
pub static MAP_MEMORY: Descriptor = Descriptor {
    name: "undercurrent.map.memory",
    unit: "By",
    description: "Kernel memory of the maps whose size depends on the machine and the settings.",
    instrument: Instrument::UpDownCounter,
    attributes: &[AttributeKey::derived(MAP, map_names).opt_in()],
    view: View::Hidden,
};

/// The duration of a snapshot.
pub static COLLECT_DURATION: Descriptor = Descriptor {
    name: "undercurrent.collect.duration",
    unit: "s",
    description: "Time to read all signals for the previous snapshot.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

/// Exported points.
pub static EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.metric_data_point.exported",
    unit: "{data_point}",
    description: "Points with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

/// Exported spans.
pub static SPANS_EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.span.exported",
    unit: "{span}",
    description: "Spans with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

/// Exported log records.
pub static LOGS_EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.log.exported",
    unit: "{log_record}",
    description: "Records of the sidecar's own log with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

/// The duration of exports.
pub static EXPORT_DURATION: Descriptor = Descriptor {
    name: "otel.sdk.exporter.operation.duration",
    unit: "s",
    description: "Duration of the export of a snapshot, with retries and the waits between them.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Hidden,
};

/// CPU time of the sidecar's processes.
pub static CPU_TIME: Descriptor = Descriptor {
    name: "process.cpu.time",
    unit: "s",
    description: "CPU time of the sidecar's processes, without the eBPF programs, which run in the kernel.",
    instrument: Instrument::Counter,
    attributes: &[AttributeKey::listed("cpu.mode", &["user", "system"])],
    view: View::Hidden,
};

/// Memory of the sidecar's processes.
pub static MEMORY: Descriptor = Descriptor {
    name: "process.memory.usage",
    unit: "By",
    description: "Resident memory of the sidecar's processes, without kernel maps; shared memory counts once.",
    instrument: Instrument::UpDownCounter,
    attributes: &[],
    view: View::Hidden,
};

/// The metrics of internal telemetry.
pub static METRICS: [&Descriptor; 13] = [
    &BUILD_INFO,
    &LOST,
    &LOST_EVENTS,
    &SAMPLING_RATIO,
    &HOOK_STATUS,
    &MAP_MEMORY,
    &COLLECT_DURATION,
    &EXPORTED,
    &SPANS_EXPORTED,
    &LOGS_EXPORTED,
    &EXPORT_DURATION,
    &CPU_TIME,
    &MEMORY,
];
