//! `processor`: cycles, instructions and cache references of each workload, from the processor's counters.

mod counts;
mod network;
mod returned;
mod settings;
mod ticks;

use std::{collections::BTreeMap, time::Instant};

use undercurrent_ebpf::abi::processor::Counter;

use self::{
    counts::{CELLS, SIBLINGS},
    returned::{Lost, Returned},
    ticks::Ticks,
};
pub use self::{
    counts::{Counts, Growth, Reader, USE, Use},
    network::{Network, NetworkTimes},
    settings::{HyperThreadRatio, Settings},
};
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, READ_FAILED, ReadError, Signal,
    lost::{LOST, lost},
};
use crate::{
    kernel::{
        Kernel,
        constant::Constant,
        counters::Wanted,
        cpu_events::CpuEvent,
        cpu_sampling::CpuSampling,
        hooks::{Hook, SCHED_SWITCH, SOFTIRQ_ENTRY, SOFTIRQ_EXIT, on_every_cpu, whole},
    },
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Metric, Point, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |_| vec![&SOFTIRQ_ENTRY, &SOFTIRQ_EXIT, &SCHED_SWITCH, &TICK],
    maps: &[&USE, &CELLS, &SIBLINGS],
    constants: |on| vec![Constant::flag("signal.processor", on.settings.processor.enabled)],
    losses: |_| vec![READ_FAILED],
    hooks_needed: HooksNeeded::Each(&[]),
    caveats: |settings, kernel| caveats(&settings.processor, kernel),
    ..Entry::new(
        "processor",
        "Cycles, instructions, cache references and cache misses of each workload, where the processor counts them",
        &[&CYCLES, &INSTRUCTIONS, &CACHE_REFERENCES, &CACHE_MISSES],
        open,
    )
};

/// A timer interrupts a CPU, so that the counters of a task that never switches are read too.
static TICK: Hook = Hook {
    name: "cpu_tick",
    reads_timestamps: false,
    sees_traffic: false,
    within: None,
    alternates: &[whole("cpu_clock", &[on_every_cpu(CpuEvent::Tick, "cpu-clock")])],
};

const ESTIMATE: &str = "undercurrent.counter.estimate";
const ATTRIBUTES: &[AttributeKey] = &[AttributeKey::listed(ESTIMATE, &["scaled"])];

static CYCLES: Descriptor =
    Descriptor::counter("undercurrent.cpu.cycles", "{cycle}", "CPU cycles, without cycles of idle CPUs.", ATTRIBUTES);
static INSTRUCTIONS: Descriptor =
    Descriptor::counter("undercurrent.cpu.instructions", "{instruction}", "Retired instructions.", ATTRIBUTES);
static CACHE_REFERENCES: Descriptor = Descriptor::counter(
    "undercurrent.cpu.cache.references",
    "{reference}",
    "References to the last-level cache.",
    ATTRIBUTES,
);
static CACHE_MISSES: Descriptor =
    Descriptor::counter("undercurrent.cpu.cache.misses", "{miss}", "Misses of the last-level cache.", ATTRIBUTES);

const fn descriptor(counter: Counter) -> &'static Descriptor {
    match counter {
        Counter::Cycles => &CYCLES,
        Counter::Instructions => &INSTRUCTIONS,
        Counter::CacheReferences => &CACHE_REFERENCES,
        Counter::CacheMisses => &CACHE_MISSES,
    }
}

/// Returns true if the programs read the counters of this processor.
pub fn counts(kernel: &Kernel) -> bool {
    kernel.counters() & Counter::Cycles.bit() != 0 && kernel.serves(&SCHED_SWITCH)
}

fn caveats(settings: &Settings, kernel: &Kernel) -> Vec<Caveat> {
    if kernel.counters() == 0 {
        let reason =
            "this machine has no hardware counters (many virtual machines have none): CPU time replaces cycles";
        return vec![Caveat::Idle(reason.to_owned())];
    }
    if !kernel.serves(&SCHED_SWITCH) {
        return vec![Caveat::Unavailable("switches between tasks are not seen".to_owned())];
    }
    let wanted = settings.wanted();
    let missing = wanted.iter().flat_map(Wanted::counters).filter(|counter| kernel.counters() & counter.bit() == 0);
    missing.map(|counter| Caveat::Partial(format!("this processor has no {}", descriptor(counter).name))).collect()
}

struct Processor {
    reader: Reader,
    network: NetworkTimes,
    softirqs: BTreeMap<Slot, u64>,
    /// The bits of the processor's counters.
    counters: u32,
    totals: BTreeMap<Slot, Totals>,
    failed: u64,
    events: CpuSampling,
    returned: Returned,
    ticks: Ticks,
    start: UnixNanos,
}

/// The totals of a slot: counted, and scaled because the kernel multiplexed the counters.
struct Totals {
    start: UnixNanos,
    counts: [Counts; 2],
}

impl Totals {
    /// Adds the counts of an interval.
    fn add(&mut self, counts: &Counts, scaled: bool) {
        let of_kind = &mut self.counts[usize::from(scaled)];
        of_kind.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }

    /// Returns the points of a counter: the scaled counts have a mark. A count of zero has no point.
    fn points(&self, counter: Counter) -> Vec<Point> {
        let marks = [Attributes::new(), Attributes::new().with(ESTIMATE, "scaled")];
        let point = |(attributes, counts): (Attributes, &Counts)| {
            let count = i64::try_from(counts[counter as usize]).unwrap_or(i64::MAX);
            (count > 0).then_some(Point { attributes, start: self.start, data: Data::Integer(count) })
        };
        marks.into_iter().zip(&self.counts).filter_map(point).collect()
    }
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let kernel = opening.kernel;
    let mut processor = Processor {
        reader: Reader::open(kernel)?,
        network: NetworkTimes::open(opening)?,
        softirqs: BTreeMap::new(),
        counters: if counts(kernel) { kernel.counters() } else { 0 },
        totals: BTreeMap::new(),
        failed: 0,
        events: kernel.cpu_sampling(),
        returned: Returned::default(),
        ticks: Ticks::default(),
        start: opening.start,
    };
    processor.reader.advance(opening.workloads);
    processor.softirqs = processor.network.softirqs(opening.workloads);
    Ok(Box::new(processor))
}

/// Starts timers of CPUs with new periods.
fn set(events: &CpuSampling, periods: Vec<(u32, u64)>) {
    if periods.is_empty() {
        return;
    }
    if let Err(error) = events.set(CpuEvent::Tick, periods) {
        tracing::warn!("cannot start a timer on the CPUs; tasks that never switch are read when they do: {error}");
    }
}

impl Processor {
    /// Adapts the timers, and opens the events of CPUs that were offline again.
    fn maintain(&mut self) {
        let online = aya::util::online_cpus().unwrap_or_default();
        let cells = self.reader.states();
        let cells = cells.iter().filter(|(cpu, _)| online.contains(cpu)).map(|(cpu, cells)| (*cpu, cells));
        let here = u32::try_from(rustix::thread::sched_getcpu()).ok();
        let mut periods = self.ticks.choose(cells.clone(), here);
        let Lost { counters, ticks } = self.returned.find(cells, Instant::now());
        periods.extend(ticks.into_iter().map(|cpu| (cpu, self.ticks.period(cpu))));
        set(&self.events, periods);
        if !counters.is_empty()
            && let Err(error) = self.events.reopen_counters(counters)
        {
            tracing::warn!("cannot open the counters of a CPU that was offline: {error}");
        }
    }

    /// Adds the growth since the previous reading. The counts of softirqs move to the receivers of the packets.
    fn advance(&mut self, workloads: &Workloads) {
        self.totals.retain(|slot, totals| workloads.start(*slot) == Some(totals.start));
        let growth = self.reader.advance(workloads);
        let softirqs = self.network.softirqs(workloads);
        let times = grown(&softirqs, &self.softirqs);
        self.softirqs = softirqs;
        self.failed += growth.failed;
        let moved = growth.divided_softirqs(&times);
        for (slot, counts) in growth.own.iter().chain(&moved) {
            let Some(start) = workloads.start(*slot) else { continue };
            let totals = self.totals.entry(*slot).or_insert(Totals { start, counts: Default::default() });
            totals.add(counts, growth.scaled);
        }
    }
}

/// Returns the growth of each slot's time. A time that fell belongs to another workload.
pub fn grown(now: &BTreeMap<Slot, u64>, before: &BTreeMap<Slot, u64>) -> BTreeMap<Slot, u64> {
    let of = |(slot, time): (&Slot, &u64)| (*slot, time.saturating_sub(before.get(slot).copied().unwrap_or(0)));
    now.iter().map(of).collect()
}

impl Signal for Processor {
    fn forget(&mut self, slot: Slot) {
        self.reader.clear(slot);
        self.softirqs.remove(&slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        if self.counters == 0 {
            return Ok(());
        }
        self.advance(workloads);
        self.maintain();
        for (slot, totals) in &self.totals {
            for counter in Counter::ALL.into_iter().filter(|counter| self.counters & counter.bit() != 0) {
                readings.add(*slot, Metric { descriptor: descriptor(counter), points: totals.points(counter) });
            }
        }
        let failed = lost(ENTRY.name, READ_FAILED, Attributes::new(), self.failed, self.start);
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: vec![failed] });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_counts_have_a_mark_and_absent_counts_no_point() {
        let mut totals = Totals { start: UnixNanos(1), counts: Default::default() };
        totals.add(&[700, 20, 0, 0, 3], false);
        totals.add(&[50, 0, 0, 0, 3], true);
        totals.add(&[1, 0, 0, 0, 0], true);
        let counts = |counter| -> Vec<_> {
            let points = totals.points(counter).into_iter();
            points.map(|point| (point.attributes.get(ESTIMATE).is_some(), point.data)).collect()
        };
        assert_eq!(counts(Counter::Cycles), [(false, Data::Integer(700)), (true, Data::Integer(51))]);
        assert_eq!(counts(Counter::Instructions), [(false, Data::Integer(20))]);
        assert_eq!(counts(Counter::CacheReferences), []);
    }
}
