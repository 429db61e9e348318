//! The sidecar's internal telemetry: hooks, losses, memory, and its own resource usage.

mod metrics;

use std::{collections::BTreeMap, mem, time::Duration};

use self::metrics::{
    BUILD_INFO, BY, COLLECT_DURATION, COMPONENT_TYPE, CPU_TIME, ERROR_TYPE, EXPORT_DURATION, EXPORTED, HOOK_STATUS,
    LATE_TICK, LOGS_EXPORTED, LOST_EVENTS, MAP, MAP_MEMORY, MEMORY, RECURSION, SAMPLING_RATIO, SNAPSHOT_REPLACED,
    SPAN_QUEUE_FULL, SPANS_EXPORTED, STATE, VERSION,
};
use super::{
    all_hooks,
    lost::{HOOK, LOST, lost},
};
use crate::{
    kernel::{
        Kernel,
        hooks::Program,
        memory::MapSize,
        plan::{Outcome, Status},
    },
    options::{AttachKind, Internal, Weight},
    process_usage::ProcessUsage,
    telemetry::{Attributes, Data, Delivery, ErrorType, ExponentialHistogram, Exporters, Metric, Point, UnixNanos},
    workloads,
};

/// The name of the signal in the catalogue.
pub const NAME: &str = "internal";
/// The summary in the catalogue.
pub const SUMMARY: &str = "Internal telemetry of the sidecar: hooks, losses, memory, resource usage";

pub use self::metrics::{LOSSES, METRICS};

/// The reader of internal telemetry.
pub struct InternalTelemetry {
    start: UnixNanos,
    detail: Internal,
    times: ProcessTimes,
    states: States,
}

/// The attributes of the last points of `undercurrent.hook.status`.
#[derive(Default)]
struct States(Vec<Attributes>);

impl States {
    /// Replaces the attributes. Returns those of the series that ended.
    fn replace(&mut self, current: Vec<Attributes>) -> Vec<Attributes> {
        let mut ended = mem::replace(&mut self.0, current);
        ended.retain(|attributes| !self.0.contains(attributes));
        ended
    }
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
        let times = ProcessTimes { running: BTreeMap::new(), ended: [0; 2] };
        Self { start, detail, times, states: States(Vec::new()) }
    }

    /// Adds the total of the node's losses.
    pub fn add_total(&self, metrics: &mut Vec<Metric>) {
        let losses = metrics.iter().filter(|metric| metric.descriptor.name == LOST.name);
        let count = |point: &Point| if let Data::Integer(count) = point.data { count } else { 0 };
        let total = losses.flat_map(|metric| &metric.points).map(count).fold(0, i64::saturating_add);
        let point = self.point(Attributes::new(), Data::Integer(total));
        metrics.push(Metric { descriptor: &LOST_EVENTS, points: vec![point] });
    }

    /// Removes the losses without an event, unless every point is requested.
    pub fn select(&self, metrics: &mut [Metric]) {
        if self.detail == Internal::Basic {
            let losses = metrics.iter_mut().filter(|metric| metric.descriptor.name == LOST.name);
            losses.for_each(|metric| metric.points.retain(|point| point.data != Data::Integer(0)));
        }
    }

    /// Returns the metrics of internal telemetry.
    #[must_use]
    pub fn read(&mut self, kernel: &Kernel, state: &State<'_>) -> Vec<Metric> {
        let hooks = self.hooks(kernel);
        let one = |descriptor, data: Option<Data>| Metric {
            descriptor,
            points: data.map(|data| self.point(Attributes::new(), data)).into_iter().collect(),
        };
        let mut metrics = vec![
            self.build(),
            hooks,
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

    fn build(&self) -> Metric {
        let attributes = Attributes::new().with(VERSION, env!("CARGO_PKG_VERSION"));
        Metric { descriptor: &BUILD_INFO, points: vec![self.point(attributes, Data::Integer(1))] }
    }

    /// Returns the states of hooks: the current one, or all. A series that is no longer among them gets an end marker, because receivers
    /// would otherwise repeat its last value for minutes.
    fn hooks(&mut self, kernel: &Kernel) -> Metric {
        let is_basic = self.detail == Internal::Basic;
        let states = kernel.outcomes().iter().flat_map(|outcome| Status::OF_HOOKS.map(|state| (outcome, state)));
        let states = states.filter(|(outcome, state)| outcome.status == *state || !is_basic);
        let states: Vec<_> = states.map(|(outcome, state)| status(outcome, state)).collect();
        let ended = self.states.replace(states.iter().map(|(attributes, _)| attributes.clone()).collect());
        let ended = ended.into_iter().map(|attributes| (attributes, Data::NoRecordedValue));
        let points = states.into_iter().chain(ended).map(|(attributes, data)| self.point(attributes, data));
        Metric { descriptor: &HOOK_STATUS, points: points.collect() }
    }

    fn memory(&self, kernel: &Kernel) -> Metric {
        let bytes = |size: &MapSize| size.bytes() as u64;
        let points = match self.detail {
            Internal::Basic => {
                vec![self.point(Attributes::new(), Data::count(kernel.memory().iter().map(bytes).sum()))]
            }
            Internal::Detailed => {
                let of = |size: &MapSize| self.point(Attributes::new().with(MAP, size.name), Data::count(bytes(size)));
                kernel.memory().iter().map(of).collect()
            }
        };
        Metric { descriptor: &MAP_MEMORY, points }
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

/// Returns the attributes and the value of a state of a hook: 1 for the current state.
fn status(outcome: &Outcome, state: Status) -> (Attributes, Data) {
    let attributes = Attributes::new().with(HOOK, outcome.hook.clone()).with(STATE, state.as_str());
    let is_current = outcome.status == state;
    let by = outcome.by.clone().filter(|_| is_current && state != Status::Unavailable);
    let attributes = by.into_iter().fold(attributes, |attributes, by| attributes.with(BY, by));
    (attributes, Data::Integer(is_current.into()))
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

    fn losses(counts: &[i64]) -> Vec<Metric> {
        let point =
            |count: &i64| Point { attributes: Attributes::new(), start: UnixNanos::now(), data: Data::Integer(*count) };
        vec![Metric { descriptor: &LOST, points: counts.iter().map(point).collect() }]
    }

    #[test]
    fn basic_telemetry_has_losses_that_occurred_beside_their_total() {
        for (detail, expected) in [(Internal::Basic, 2), (Internal::Detailed, 3)] {
            let mut metrics = losses(&[0, 3, 4]);
            let telemetry = InternalTelemetry::new(UnixNanos::now(), detail);
            telemetry.add_total(&mut metrics);
            telemetry.select(&mut metrics);
            assert_eq!((metrics[0].points.len(), &metrics[1].points[0].data), (expected, &Data::Integer(7)));
        }
        let mut none = losses(&[]);
        InternalTelemetry::new(UnixNanos::now(), Internal::Basic).add_total(&mut none);
        assert_eq!(none[1].points[0].data, Data::Integer(0));
    }

    #[test]
    fn a_state_ends_once() {
        let of = |state| Attributes::new().with(HOOK, "transport").with(STATE, state);
        let mut states = States::default();
        assert!(states.replace(vec![of("healthy")]).is_empty());
        assert_eq!(states.replace(vec![of("degraded")]), [of("healthy")]);
        assert!(states.replace(vec![of("degraded")]).is_empty());
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
