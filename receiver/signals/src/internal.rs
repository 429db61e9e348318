//! The sidecar's internal telemetry: hooks, losses, memory, and its own resource usage.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Settings, all_hooks, distinct,
    lost::{self, HOOK, LOST, lost},
    planned_maps,
};
use crate::{
    kernel::{
        Kernel,
        hooks::Program,
        memory::MapSize,
        plan::{Outcome, Status},
    },
    options::{AttachKind, Internal, Output, Weight},
    process_usage::ProcessUsage,
    telemetry::{
        AttributeKey, Attributes, Data, Delivery, Descriptor, ErrorType, ExponentialHistogram, Exporters, Instrument,
        Metric, Point, UnixNanos, View,
    },
    workloads,
};

/// The name of the signal in the catalogue.
pub const NAME: &str = "internal";
/// The summary in the catalogue.
pub const SUMMARY: &str = "Internal telemetry of the sidecar: hooks, losses, memory, resource usage";

const STATE: &str = "undercurrent.hook.state";
const BY: &str = "undercurrent.alternate";
const MAP: &str = "undercurrent.map";
/// The values of `undercurrent.reason` that internal telemetry counts.
pub const LOSSES: [&str; 4] = [RECURSION, LATE_TICK, SNAPSHOT_REPLACED, SPAN_QUEUE_FULL];
/// The reason for programs that the kernel skipped, because they or other kprobe programs were already running on the
/// CPU.
const RECURSION: &str = "recursion";
const LATE_TICK: &str = "late_tick";
const SNAPSHOT_REPLACED: &str = "snapshot_replaced";
const SPAN_QUEUE_FULL: &str = "span_queue_full";

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
const ERROR_TYPE: AttributeKey = AttributeKey::open(
    "error.type",
    "absent for success; the status of gRPC or HTTP, the error of a connection or file, or `rejected`",
);
const COMPONENT_TYPE: AttributeKey = AttributeKey::derived(lost::COMPONENT_TYPE, || {
    let otlp = [Exporters::OTLP_GRPC, Exporters::OTLP_HTTP, Exporters::OTLP_HTTP_JSON];
    let of_signals = |exporters: Exporters| [exporters.metrics, exporters.spans, exporters.logs];
    let others = Output::KINDS.into_iter().filter(|output| *output != Output::OTLP);
    otlp.into_iter().flat_map(of_signals).chain(others).collect()
});

static SAMPLING_RATIO: Descriptor = Descriptor {
    name: "undercurrent.sampling.ratio",
    unit: "1",
    description: "Fraction of packets that are measured; a measured packet counts as 1/ratio packets.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

static HOOK_STATUS: Descriptor = Descriptor {
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

static MAP_MEMORY: Descriptor = Descriptor {
    name: "undercurrent.map.memory",
    unit: "By",
    description: "Kernel memory of the maps whose size depends on the machine and the settings.",
    instrument: Instrument::UpDownCounter,
    attributes: &[AttributeKey::derived(MAP, map_names)],
    view: View::Hidden,
};

static COLLECT_DURATION: Descriptor = Descriptor {
    name: "undercurrent.collect.duration",
    unit: "s",
    description: "Time to read all signals for the previous snapshot.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

static EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.metric_data_point.exported",
    unit: "{data_point}",
    description: "Points with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

static SPANS_EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.span.exported",
    unit: "{span}",
    description: "Spans with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

static LOGS_EXPORTED: Descriptor = Descriptor {
    name: "otel.sdk.exporter.log.exported",
    unit: "{log_record}",
    description: "Records of the sidecar's own log with a finished export.",
    instrument: Instrument::Counter,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Failures,
};

static EXPORT_DURATION: Descriptor = Descriptor {
    name: "otel.sdk.exporter.operation.duration",
    unit: "s",
    description: "Duration of the export of a snapshot, with retries and the waits between them.",
    instrument: Instrument::ExponentialHistogram,
    attributes: &[COMPONENT_TYPE, ERROR_TYPE],
    view: View::Hidden,
};

static CPU_TIME: Descriptor = Descriptor {
    name: "process.cpu.time",
    unit: "s",
    description: "CPU time of the sidecar's processes, without the eBPF programs, which run in the kernel.",
    instrument: Instrument::Counter,
    attributes: &[AttributeKey::listed("cpu.mode", &["user", "system"])],
    view: View::Hidden,
};

static MEMORY: Descriptor = Descriptor {
    name: "process.memory.usage",
    unit: "By",
    description: "Resident memory of the sidecar's processes, without kernel maps; shared memory counts once.",
    instrument: Instrument::UpDownCounter,
    attributes: &[],
    view: View::Hidden,
};

/// The metrics of internal telemetry.
pub static METRICS: [&Descriptor; 11] = [
    &LOST,
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

/// The reader of internal telemetry.
pub struct InternalTelemetry {
    start: UnixNanos,
    detail: Internal,
    times: ProcessTimes,
}

/// CPU time of processes in user and in system mode, in clock ticks.
struct ProcessTimes {
    running: BTreeMap<u32, [u64; 2]>,
    /// The sum of the last values of ended processes.
    ended: [u64; 2],
}

impl ProcessTimes {
    /// Adds up the processes that run no more.
    fn retain(&mut self, processes: &[u32]) {
        let ended = &mut self.ended;
        self.running.retain(|process, times| {
            let runs = processes.contains(process);
            if !runs {
                ended.iter_mut().zip(times).for_each(|(sum, time)| *sum += *time);
            }
            runs
        });
    }

    /// Returns the time of all processes so far in a mode.
    fn total(&self, mode: usize) -> u64 {
        self.ended[mode] + self.running.values().map(|times| times[mode]).sum::<u64>()
    }
}

/// The sidecar's state at a snapshot.
pub struct State<'a> {
    /// The duration of the previous snapshot.
    pub collect: Option<Duration>,
    /// The number of packets that one measured packet represents.
    pub weight: Weight,
    /// The totals of each output.
    pub outputs: &'a [Delivery],
    /// Losses of workload attribution. The events count for the node.
    pub losses: &'a [workloads::Loss],
    /// The processes of the sidecar, the worker first, with their usage if it is known.
    pub processes: &'a [(u32, Option<ProcessUsage>)],
    /// Number of late ticks.
    pub late_ticks: u64,
}

impl InternalTelemetry {
    /// Starts the measurement.
    #[must_use]
    pub const fn new(start: UnixNanos, detail: Internal) -> Self {
        Self { start, detail, times: ProcessTimes { running: BTreeMap::new(), ended: [0; 2] } }
    }

    /// Removes the points of losses and of hooks' states that are zero, unless they are requested.
    pub fn select(&self, metrics: &mut [Metric]) {
        if self.detail == Internal::Basic {
            let is_selected = |metric: &&mut Metric| [LOST.name, HOOK_STATUS.name].contains(&metric.descriptor.name);
            metrics
                .iter_mut()
                .filter(is_selected)
                .for_each(|metric| metric.points.retain(|point| !is_zero(&point.data)));
        }
    }

    /// Returns the metrics of internal telemetry.
    #[must_use]
    pub fn read(&mut self, kernel: &Kernel, state: &State<'_>) -> Vec<Metric> {
        let one = |descriptor, data: Option<Data>| Metric {
            descriptor,
            points: data.map(|data| self.point(Attributes::new(), data)).into_iter().collect(),
        };
        let mut metrics = vec![
            self.hooks(kernel),
            self.memory(kernel),
            self.missed(kernel),
            self.unattributed(state.losses),
            self.late(state.late_ticks),
            one(&SAMPLING_RATIO, Some(Data::Double(1.0 / f64::from(state.weight.get())))),
            one(&COLLECT_DURATION, state.collect.map(|duration| Data::Double(duration.as_secs_f64()))),
        ];
        metrics.extend(self.deliveries(state.outputs));
        metrics.extend(self.processes(state.processes));
        metrics
    }

    const fn point(&self, attributes: Attributes, data: Data) -> Point {
        Point { attributes, start: self.start, data }
    }

    fn hooks(&self, kernel: &Kernel) -> Metric {
        let point = |outcome: &Outcome, state: Status| {
            let attributes = Attributes::new().with(HOOK, outcome.hook.clone()).with(STATE, state.as_str());
            let is_current = outcome.status == state;
            let by = outcome.by.clone().filter(|_| is_current && state != Status::Unavailable);
            let attributes = by.into_iter().fold(attributes, |attributes, by| attributes.with(BY, by));
            self.point(attributes, Data::Integer(is_current.into()))
        };
        let outcomes = kernel.outcomes().iter();
        let points = outcomes.flat_map(|outcome| Status::OF_HOOKS.map(|state| point(outcome, state)));
        Metric { descriptor: &HOOK_STATUS, points: points.collect() }
    }

    fn memory(&self, kernel: &Kernel) -> Metric {
        let point =
            |size: &MapSize| self.point(Attributes::new().with(MAP, size.name), Data::count(size.bytes() as u64));
        Metric { descriptor: &MAP_MEMORY, points: kernel.memory().iter().map(point).collect() }
    }

    fn missed(&self, kernel: &Kernel) -> Metric {
        let runs = match kernel.runs() {
            Ok(runs) => runs,
            Err(error) => {
                tracing::warn!("cannot read the run counts of the eBPF programs: {error}");
                return Metric { descriptor: &LOST, points: Vec::new() };
            }
        };
        let points = kernel.outcomes().iter().filter(|outcome| can_skip(outcome)).map(|outcome| {
            let missed = outcome.programs.iter().filter_map(|program| runs.get(program.as_ref()));
            let missed = missed.map(|runs| runs.misses).sum();
            lost(NAME, RECURSION, Attributes::new().with(HOOK, outcome.hook.clone()), missed, self.start)
        });
        Metric { descriptor: &LOST, points: points.collect() }
    }

    fn unattributed(&self, losses: &[workloads::Loss]) -> Metric {
        let point =
            |(reason, count): &workloads::Loss| lost(workloads::NAME, reason, Attributes::new(), *count, self.start);
        Metric { descriptor: &LOST, points: losses.iter().map(point).collect() }
    }

    fn deliveries(&self, outputs: &[Delivery]) -> [Metric; 5] {
        let (mut points, mut spans, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut durations, mut losses) = (Vec::new(), Vec::new());
        for delivery in outputs {
            let of = |exporter: &'static str| Attributes::new().with(COMPONENT_TYPE.key, exporter);
            let Exporters { metrics, spans: of_spans, logs: of_logs } = delivery.exporters;
            let (exporter, of_spans, of_logs) = (of(metrics), of(of_spans), of(of_logs));
            let with = |attributes: &Attributes, error: &ErrorType| {
                error.iter().fold(attributes.clone(), |attributes, error| attributes.with(ERROR_TYPE.key, *error))
            };
            let attributes = |error: &ErrorType| with(&exporter, error);
            let exported = delivery.spans.iter();
            spans.extend(exported.map(|(error, count)| self.point(with(&of_spans, error), Data::count(*count))));
            let exported = delivery.logs.iter();
            logs.extend(exported.map(|(error, count)| self.point(with(&of_logs, error), Data::count(*count))));
            points.extend(
                delivery.points.iter().map(|(error, count)| self.point(attributes(error), Data::count(*count))),
            );
            let duration = |(error, durations): (&ErrorType, &ExponentialHistogram)| {
                self.point(attributes(error), Data::Histogram(durations.clone()))
            };
            durations.extend(delivery.exports.iter().map(duration));
            losses.push(lost(NAME, SNAPSHOT_REPLACED, exporter.clone(), delivery.dropped_snapshots, self.start));
            if delivery.dropped_spans > 0 {
                losses.push(lost(NAME, SPAN_QUEUE_FULL, of_spans, delivery.dropped_spans, self.start));
            }
        }
        let metric = |descriptor, points| Metric { descriptor, points };
        [
            metric(&EXPORTED, points),
            metric(&SPANS_EXPORTED, spans),
            metric(&LOGS_EXPORTED, logs),
            metric(&EXPORT_DURATION, durations),
            metric(&LOST, losses),
        ]
    }

    fn late(&self, ticks: u64) -> Metric {
        Metric { descriptor: &LOST, points: vec![lost(NAME, LATE_TICK, Attributes::new(), ticks, self.start)] }
    }

    /// Returns CPU time and memory of the processes. Most file-backed pages are shared with the first process, and
    /// count there.
    fn processes(&mut self, processes: &[(u32, Option<ProcessUsage>)]) -> Vec<Metric> {
        let mut pages = 0;
        self.times.retain(&processes.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        for (nth, (number, usage)) in processes.iter().enumerate() {
            let Some(ProcessUsage { times, resident, shared, maps }) = *usage else { continue };
            self.times.running.insert(*number, times);
            pages += resident.saturating_sub(if nth == 0 { maps } else { shared });
        }
        let ticks = procfs::ticks_per_second() as f64;
        let time = |mode: &'static str, index: usize| {
            let spent = self.times.total(index) as f64 / ticks;
            self.point(Attributes::new().with("cpu.mode", mode), Data::Double(spent))
        };
        vec![
            Metric { descriptor: &CPU_TIME, points: vec![time("user", 0), time("system", 1)] },
            Metric {
                descriptor: &MEMORY,
                points: vec![self.point(Attributes::new(), Data::count(pages * procfs::page_size()))],
            },
        ]
    }
}

/// Returns true if a number is zero.
const fn is_zero(data: &Data) -> bool {
    matches!(data, Data::Integer(0))
}

/// Returns true if the kernel can skip runs of the programs of a hook. Programs of cgroups have no such guard, and a hook that
/// other programs serve has no programs.
fn can_skip(outcome: &Outcome) -> bool {
    let of_cgroups = |program: &&Program<'_>| program.attachment.kind() == AttachKind::Cgroup;
    let alternates = all_hooks().into_iter().flat_map(|hook| hook.alternates);
    let programs = alternates.flat_map(|alternate| alternate.programs);
    let of_cgroups: Vec<&str> = programs.filter(of_cgroups).map(|program| program.symbol).collect();
    outcome.programs.iter().any(|program| !of_cgroups.contains(&&**program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_telemetry_has_no_zeros_of_losses_and_states() {
        let points = |values: &[i64]| {
            let point = |value: &i64| Point {
                attributes: Attributes::new(),
                start: UnixNanos::now(),
                data: Data::Integer(*value),
            };
            values.iter().map(point).collect()
        };
        let metrics =
            || [&LOST, &HOOK_STATUS, &MAP_MEMORY].map(|descriptor| Metric { descriptor, points: points(&[0, 1, 0]) });
        for (detail, expected) in [(Internal::Basic, [1, 1, 3]), (Internal::Detailed, [3, 3, 3])] {
            let mut metrics = metrics();
            InternalTelemetry::new(UnixNanos::now(), detail).select(&mut metrics);
            assert_eq!(metrics.map(|metric| metric.points.len()), expected);
        }
    }

    #[test]
    fn ended_processes_keep_their_time_and_no_entry() {
        let mut times = ProcessTimes { running: BTreeMap::from([(1, [10, 1]), (2, [20, 2])]), ended: [0; 2] };
        times.retain(&[1]);
        times.running.insert(3, [5, 0]);
        assert_eq!((times.running.len(), times.total(0), times.total(1)), (2, 35, 3));
        times.retain(&[]);
        assert_eq!((times.running.len(), times.total(0), times.total(1)), (0, 35, 3));
    }
}
