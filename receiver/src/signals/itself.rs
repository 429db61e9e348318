//! What the sidecar says of itself: hooks, losses, memory, and the cost of its own work.

use std::{collections::BTreeMap, time::Duration};

use super::attributes::{INTERFACE, REASON};
use crate::{
    config::Weight,
    kernel::{Kernel, plan::Status},
    telemetry::{AttributeKey, Attributes, Data, Delivery, Descriptor, Instrument, Metric, Point, UnixNanos, View},
    workloads,
};

/// The name in the catalogue.
pub const NAME: &str = "itself";
/// One sentence for people.
pub const SUMMARY: &str = "What the sidecar says of itself: hooks, losses, memory, cost";

const HOOK: &str = "undercurrent.hook";
const STATUS: &str = "undercurrent.status";
const BY: &str = "undercurrent.alternate";
const MAP: &str = "undercurrent.map";
const SIGNAL: &str = "undercurrent.signal";
const REASONS: &[&str] = &[
    "no_stamp",
    "transmit_stamp",
    "negative",
    "unmatched",
    "unfiltered",
    "no_clock",
    "driver_notes",
    "head_of_line",
    "above_range",
    "unseen_raise",
    "unread",
    "recursion",
    "unknown_owner",
    "no_owner",
    "unknown_interface",
    "group_limit",
    "storage_refused",
    "change_unheard",
    "no_room",
    "cgroup_quota",
    "slot_quota",
    "scan_cut",
    "reader_replaced",
    "question_refused",
    "late_tick",
    "snapshot_replaced",
    "point_rejected",
];
const FAILURE: &str = "error.type";
const OUTPUT: &str = "undercurrent.output";
const OUTPUTS: AttributeKey = key(OUTPUT, &["otlp", "json", "table"]);

const fn key(key: &'static str, values: &'static [&'static str]) -> AttributeKey {
    AttributeKey { key, values, opt_in: false }
}

/// What was seen and is in no measurement, or in one that cannot hold it.
pub static LOST: Descriptor = Descriptor {
    name: "undercurrent.lost",
    unit: "{event}",
    description: "Events that could not be measured, or of which it could not be told whose they are, by reason.",
    instrument: Instrument::Counter,
    attributes: &[
        key(
            SIGNAL,
            &[
                "latency",
                "receive_wait",
                "receive_driver",
                "tcp_rtt",
                "transmit",
                "softirq_wait",
                "workload_cpu",
                "cpu_throttled",
                "workloads",
                "itself",
            ],
        ),
        key(REASON, REASONS),
        key("undercurrent.network.layer", &["of a packet"]),
        key("network.transport", &["of a packet"]),
        key("network.type", &["of a packet"]),
        key(INTERFACE.key, &["of a card"]),
        key("undercurrent.softirq", &["of a raise"]),
        key(HOOK, &["of a program, where it or another kprobe's was running already"]),
        key(OUTPUT, &["of a snapshot or point"]),
    ],
    view: View::Notice { normal: &[] },
};

static SAMPLING_RATIO: Descriptor = Descriptor {
    name: "undercurrent.sampling.ratio",
    unit: "1",
    description: "Share of packets that are measured, chosen by their receive timestamps; they count for the others too.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

static HOOK_STATUS: Descriptor = Descriptor {
    name: "undercurrent.hook.status",
    unit: "1",
    description: "One for the state that each hook is in.",
    instrument: Instrument::Gauge,
    attributes: &[
        key(
            HOOK,
            &[
                "softirq_raise",
                "softirq_entry",
                "softirq_exit",
                "driver",
                "ip",
                "transport",
                "socket_enqueued",
                "socket_read",
                "transmit_send",
                "transmit_queue",
                "transmit_start",
                "transmit_end",
                "tcp_retransmit",
                "drop",
                "socket_reader",
                "socket_creator",
                "cgroup_change",
                "a function of `extra_layers`",
            ],
        ),
        key(STATUS, &["whole", "degraded", "absent"]),
        key(BY, &["fentry", "kprobe", "tracepoint", "cgroup_skb"]),
    ],
    view: View::Notice { normal: &["whole"] },
};

static MAP_MEMORY: Descriptor = Descriptor {
    name: "undercurrent.map.memory",
    unit: "By",
    description: "Kernel memory of the maps whose size depends on the machine and the settings.",
    instrument: Instrument::UpDownCounter,
    attributes: &[key(
        MAP,
        &[
            "LATENCY",
            "WORKLOAD_LATENCY",
            "EXTRA_LATENCY",
            "GROUP_LATENCY",
            "WAITING",
            "FILTER",
            "GROUPS",
            "FREE_GROUPS",
            "INTERFACES",
            "GROUP_LOSSES",
            "DEPARTING",
            "SOFTIRQ",
            "DRIVER",
            "RETRANSMITS",
            "DROPS",
            "WORKLOAD_DROPS",
            "OWNERS",
            "SOCKETS",
            "OWNER_LOSSES",
            "CGROUPS",
        ],
    )],
    view: View::Hidden,
};

static COLLECT_DURATION: Descriptor = Descriptor {
    name: "undercurrent.collect.duration",
    unit: "s",
    description: "Time that reading all signals took, for the snapshot before this one.",
    instrument: Instrument::Gauge,
    attributes: &[],
    view: View::Hidden,
};

static EXPORT_POINTS: Descriptor = Descriptor {
    name: "undercurrent.export.points",
    unit: "{point}",
    description: "Points that an output delivered.",
    instrument: Instrument::Counter,
    attributes: &[OUTPUTS],
    view: View::Hidden,
};

static EXPORT_FAILURES: Descriptor = Descriptor {
    name: "undercurrent.export.failures",
    unit: "{request}",
    description: "Deliveries that failed, by reason.",
    instrument: Instrument::Counter,
    attributes: &[OUTPUTS, key(FAILURE, &["the gRPC status, or what went wrong before one came"])],
    view: View::Notice { normal: &[] },
};

static EXPORT_DURATION: Descriptor = Descriptor {
    name: "undercurrent.export.duration",
    unit: "s",
    description: "Time that the last delivery took.",
    instrument: Instrument::Gauge,
    attributes: &[OUTPUTS],
    view: View::Hidden,
};

static CPU_TIME: Descriptor = Descriptor {
    name: "process.cpu.time",
    unit: "s",
    description: "CPU time of the sidecar's own processes; its programs' time is the kernel's.",
    instrument: Instrument::Counter,
    attributes: &[key("cpu.mode", &["user", "system"])],
    view: View::Hidden,
};

static MEMORY: Descriptor = Descriptor {
    name: "process.memory.usage",
    unit: "By",
    description: "Resident memory of the sidecar's own processes; what they share counts once.",
    instrument: Instrument::UpDownCounter,
    attributes: &[],
    view: View::Hidden,
};

/// The sidecar's own metrics.
pub static METRICS: [&Descriptor; 10] = [
    &LOST,
    &SAMPLING_RATIO,
    &HOOK_STATUS,
    &MAP_MEMORY,
    &COLLECT_DURATION,
    &EXPORT_POINTS,
    &EXPORT_FAILURES,
    &EXPORT_DURATION,
    &CPU_TIME,
    &MEMORY,
];

/// A point of [`LOST`].
pub fn lost(signal: &'static str, reason: &'static str, attributes: Attributes, count: u64, start: UnixNanos) -> Point {
    Point { attributes: attributes.with(SIGNAL, signal).with(REASON, reason), start, data: integer(count) }
}

fn integer(count: u64) -> Data {
    Data::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Reads what the sidecar says of itself.
pub struct Itself {
    start: UnixNanos,
    /// CPU time of each process in user and in system mode, in clock ticks; those that have ended keep theirs.
    times: BTreeMap<u32, [u64; 2]>,
}

/// The sidecar's state at a snapshot.
pub struct State<'a> {
    /// The duration of the last snapshot.
    pub collect: Option<Duration>,
    /// How many packets stand for one that is measured.
    pub weight: Weight,
    /// Totals of each output.
    pub outputs: &'a [(&'static str, Delivery)],
    /// Events that stand with the node although they may belong to a workload.
    pub losses: &'a [workloads::Loss],
    /// The processes of the sidecar, the worker first.
    pub processes: &'a [u32],
    /// Ticks that came late.
    pub late_ticks: u64,
}

impl Itself {
    /// Begins now.
    #[must_use]
    pub const fn new(start: UnixNanos) -> Self {
        Self { start, times: BTreeMap::new() }
    }

    /// The sidecar's own measurements.
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
        let points = kernel.outcomes().iter().map(|outcome| {
            let attributes = Attributes::new().with(HOOK, outcome.hook.clone()).with(STATUS, outcome.status.as_str());
            let attributes = match &outcome.by {
                Some(by) if outcome.status != Status::Absent => attributes.with(BY, by.clone()),
                _ => attributes,
            };
            self.point(attributes, Data::Integer(1))
        });
        Metric { descriptor: &HOOK_STATUS, points: points.collect() }
    }

    fn memory(&self, kernel: &Kernel) -> Metric {
        let point = |(map, bytes): &(&'static str, usize)| {
            self.point(Attributes::new().with(MAP, *map), integer(*bytes as u64))
        };
        Metric { descriptor: &MAP_MEMORY, points: kernel.memory().iter().map(point).collect() }
    }

    fn missed(&self, kernel: &Kernel) -> Metric {
        let runs = match kernel.runs() {
            Ok(runs) => runs,
            Err(error) => {
                tracing::warn!("cannot read how often programs ran: {error}");
                return Metric { descriptor: &LOST, points: Vec::new() };
            }
        };
        let points = kernel.outcomes().iter().map(|outcome| {
            let missed = outcome.programs.iter().filter_map(|program| runs.get(program.as_ref()));
            let missed = missed.map(|runs| runs.misses).sum();
            lost(NAME, "recursion", Attributes::new().with(HOOK, outcome.hook.clone()), missed, self.start)
        });
        Metric { descriptor: &LOST, points: points.collect() }
    }

    fn unattributed(&self, losses: &[workloads::Loss]) -> Metric {
        let point =
            |(reason, count): &workloads::Loss| lost(workloads::NAME, reason, Attributes::new(), *count, self.start);
        Metric { descriptor: &LOST, points: losses.iter().map(point).collect() }
    }

    fn deliveries(&self, outputs: &[(&'static str, Delivery)]) -> [Metric; 4] {
        let (mut points, mut durations, mut failures, mut losses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (output, delivery) in outputs {
            let attributes = Attributes::new().with(OUTPUT, *output);
            points.push(self.point(attributes.clone(), integer(delivery.points)));
            if let Some(duration) = delivery.last_duration {
                durations.push(self.point(attributes.clone(), Data::Double(duration.as_secs_f64())));
            }
            for (reason, count) in &delivery.failures {
                failures.push(self.point(attributes.clone().with(FAILURE, *reason), integer(*count)));
            }
            for (reason, count) in
                [("snapshot_replaced", delivery.dropped_snapshots), ("point_rejected", delivery.rejected_points)]
            {
                losses.push(lost(NAME, reason, attributes.clone(), count, self.start));
            }
        }
        let metric = |descriptor, points| Metric { descriptor, points };
        [
            metric(&EXPORT_POINTS, points),
            metric(&EXPORT_DURATION, durations),
            metric(&EXPORT_FAILURES, failures),
            metric(&LOST, losses),
        ]
    }

    fn late(&self, ticks: u64) -> Metric {
        Metric { descriptor: &LOST, points: vec![lost(NAME, "late_tick", Attributes::new(), ticks, self.start)] }
    }

    /// CPU time and memory of the processes. All but the first share most pages of files with the first.
    fn processes(&mut self, processes: &[u32]) -> Vec<Metric> {
        let mut pages = 0;
        for (nth, number) in processes.iter().enumerate() {
            let Ok((stat, memory)) = usage(*number) else { continue };
            self.times.insert(*number, [stat.utime, stat.stime]);
            pages += memory.resident - if nth == 0 { 0 } else { memory.shared.min(memory.resident) };
        }
        let ticks = procfs::ticks_per_second() as f64;
        let time = |mode: &'static str, index: usize| {
            let spent: u64 = self.times.values().map(|times| times[index]).sum();
            self.point(Attributes::new().with("cpu.mode", mode), Data::Double(spent as f64 / ticks))
        };
        vec![
            Metric { descriptor: &CPU_TIME, points: vec![time("user", 0), time("system", 1)] },
            Metric {
                descriptor: &MEMORY,
                points: vec![self.point(Attributes::new(), integer(pages * procfs::page_size()))],
            },
        ]
    }
}

/// What the kernel counted for a process.
fn usage(process: u32) -> procfs::ProcResult<(procfs::process::Stat, procfs::process::StatM)> {
    let process = procfs::process::Process::new(process.cast_signed())?;
    Ok((process.stat()?, process.statm()?))
}
