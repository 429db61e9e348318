//! `network_cpu`: exact CPU time of the network softirqs and of socket calls. The time of the receive softirq is divided over the
//! workloads that receive its packets.

mod hooks;
mod points;
mod settings;

use std::iter;

use undercurrent_ebpf::abi::{
    cost::{self, CostKind, RunningCall, waiting_calls},
    softirq::{Softirq, SoftirqCells},
};

pub(super) use self::hooks::RECEIVER;
pub(super) use self::points::CPU_TIME;
pub use self::settings::{Exact, Settings};
use self::{
    hooks::SOCKET_CALL,
    points::{DIRECT, IO_URING_TIME},
};
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, SOFTIRQS, Signal, attributes,
    lost::{LOST, lost},
};
use crate::{
    kernel::{
        Kernel, KernelError,
        hooks::{SCHED_SWITCH, SOFTIRQ_ENTRY, SOFTIRQ_EXIT},
        maps::ByCpu,
        memory::PlannedMap,
    },
    slot_words::{SlotWords, entries},
    telemetry::{Attributes, Metric, Point, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |settings| hooks::required(&settings.network_cpu),
    maps: &[&SOFTIRQS, &NETWORK_CPU, &CALLS, &WAITING_CALLS],
    constants: |on| on.settings.network_cpu.constants(on.sizing),
    losses: |on| if on.socket_calls { vec![REPLACED] } else { Vec::new() },
    hooks_needed: HooksNeeded::Each(&[&SOFTIRQ_ENTRY, &SOFTIRQ_EXIT]),
    caveats: |settings, kernel| caveats(settings.network_cpu.exact(), kernel),
    ..Entry::new(
        "network_cpu",
        "CPU time of the network softirqs, by the workload that receives the packets, and optionally of socket calls",
        &[&CPU_TIME, &IO_URING_TIME],
        open,
    )
};

/// The reason for socket calls whose task found no place in the table of waiting tasks.
const REPLACED: &str = "call_replaced";

/// Nanoseconds by slot, shard and [`CostKind`].
static NETWORK_CPU: PlannedMap = PlannedMap::new("NETWORK_CPU", size_of::<[u64; cost::WORDS]>(), entries);
/// The socket call on each CPU.
static CALLS: PlannedMap = PlannedMap::by_cpu::<RunningCall>("CALLS", |sizing| sizing.cpus);
/// The socket calls of tasks that do not run.
static WAITING_CALLS: PlannedMap =
    PlannedMap::new("WAITING_CALLS", size_of::<[u64; waiting_calls::TASKS]>(), |sizing| {
        if sizing.socket_calls { waiting_calls::ENTRIES } else { 0 }
    });

/// The map [`NETWORK_CPU`].
pub struct Shares(SlotWords);

impl Shares {
    /// Maps the times into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        SlotWords::open(kernel, &NETWORK_CPU, cost::WORDS).map(Self)
    }

    /// Returns the CPU time of a workload in nanoseconds.
    pub fn time(&self, slot: Slot, kind: CostKind) -> u64 {
        self.0.sum(slot, kind as usize)
    }

    /// Clears the times of a slot.
    pub fn clear(&self, slot: Slot) {
        self.0.clear(slot);
    }
}

struct NetworkCpu {
    /// `None` if nothing is measured exactly.
    softirqs: Option<ByCpu<SoftirqCells>>,
    per_cpu: bool,
    shares: Shares,
    /// The work that is charged to workloads.
    charged: Vec<CostKind>,
    /// `None` if socket calls are not measured.
    calls: Option<ByCpu<RunningCall>>,
    start: UnixNanos,
}

/// Returns true if the programs divide the time of the receive softirq over workloads.
pub fn divides(kernel: &Kernel) -> bool {
    kernel.by_workload() && kernel.serves(&RECEIVER)
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let (kernel, settings) = (opening.kernel, &opening.settings.network_cpu);
    let divides = settings.measures_softirqs() && divides(kernel) && !settings.per_cpu;
    let calls = settings.exact() == Exact::All && kernel.serves(&SCHED_SWITCH) && kernel.serves(&SOCKET_CALL);
    let is_charged = |kind: &CostKind| if *kind == CostKind::ReceiveSoftirq { divides } else { calls };
    Ok(Box::new(NetworkCpu {
        softirqs: (settings.exact() != Exact::None).then(|| opening.softirqs()).transpose()?,
        per_cpu: settings.per_cpu,
        shares: Shares::open(kernel)?,
        charged: CostKind::ALL.into_iter().filter(is_charged).collect(),
        calls: calls.then(|| kernel.by_cpu(&CALLS)).transpose()?,
        start: opening.start,
    }))
}

fn caveats(exact: Exact, kernel: &Kernel) -> Vec<Caveat> {
    let (host, mut caveats) = (kernel.host(), Vec::new());
    if exact == Exact::None {
        caveats.push(Caveat::Idle(
            "nothing is measured exactly: set `level: detailed` or `signals.network_cpu.exact`".to_owned(),
        ));
    }
    if host.preempt_rt {
        let preempted = "PREEMPT_RT: softirqs run in threads, and their time includes tasks that preempt these threads";
        caveats.push(Caveat::Partial(preempted.to_owned()));
    }
    if !host.threaded_napi.is_empty() {
        caveats.push(Caveat::Partial(format!("threaded NAPI is not measured: {}", host.threaded_napi.join(", "))));
    }
    caveats
}

impl NetworkCpu {
    /// Returns the points of the softirqs that are not divided over workloads.
    fn undivided(&self) -> Vec<Point> {
        let mut by_cpu = Vec::new();
        if let Some(softirqs) = &self.softirqs {
            softirqs.for_each(|cpu, cells| by_cpu.push((cpu, cells.state.map(|state| state.time))));
        }
        let is_divided = |softirq| softirq == Softirq::Receive && self.charged.contains(&CostKind::ReceiveSoftirq);
        let whole = Softirq::ALL.into_iter().filter(|softirq| self.softirqs.is_some() && !is_divided(*softirq));
        let points = whole.flat_map(|softirq| {
            let times = by_cpu.iter().map(move |(cpu, times)| (*cpu, times[softirq as usize]));
            let point = |time| points::of_event(points::softirq(softirq), DIRECT, self.start, time);
            let of_cpu = |(cpu, time)| {
                let Point { attributes, start, data } = point(time);
                Point { attributes: attributes.with(attributes::CPU, cpu as i64), start, data }
            };
            if self.per_cpu { times.map(of_cpu).collect() } else { vec![point(times.map(|(_, time)| time).sum())] }
        });
        points.collect()
    }

    /// Appends the points of a slot. Workloads have no points with zero.
    fn read_slot(&self, slot: Slot, start: UnixNanos, readings: &mut Readings) {
        for kind in &self.charged {
            let time = self.shares.time(slot, *kind);
            if time > 0 || slot == Slot::NODE {
                let (descriptor, point) = points::charged(*kind, start, time);
                readings.add(slot, Metric { descriptor, points: vec![point] });
            }
        }
    }
}

impl Signal for NetworkCpu {
    fn forget(&mut self, slot: Slot) {
        self.shares.clear(slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let undivided = Metric { descriptor: &CPU_TIME, points: self.undivided() };
        readings.add(Slot::NODE, undivided);
        for (slot, start) in iter::once((Slot::NODE, self.start)).chain(workloads.slots()) {
            self.read_slot(slot, start, readings);
        }
        if let Some(calls) = &self.calls {
            let mut replaced = 0;
            calls.for_each(|_, call| replaced += call.replaced);
            let lost = lost(ENTRY.name, REPLACED, Attributes::new(), replaced, self.start);
            readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![lost] });
        }
        Ok(())
    }
}
