//! `network_functions`: estimated CPU time of the network stack by event and function, from samples of all CPUs.
//!
//! The processor's cycle counter interrupts each CPU, or else a timer.
//!
//! - The counter stops while a CPU is halted, so it wakes no idle CPU. Its interrupt is non-maskable on most processors, so it samples code
//!   with disabled interrupts too. A sample represents its cycles, and user space converts cycles to time: see `price`.
//! - The timer is late while interrupts are disabled, and this time is attributed to the code that enables them again. A sample represents its
//!   period, and the periods that the kernel skips if the timer is late. The test of this signal bounds the bias by the exact time of softirqs.
//!
//! Both have a fixed period, which `frequency` adapts, and which differs by CPU: see [`cpu_events`](crate::kernel::cpu_events). The kernel's
//! frequency mode (`perf_event_attr.freq`) would give a partly idle CPU more samples for each second of busy time, and start with a burst of
//! samples.

mod charges;
mod classifier;
mod collector;
mod frequency;
mod price;
mod settings;
mod source;
mod stacks;
mod sum;
mod table;

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinHandle;
use undercurrent_ebpf::abi::sample::{SampleCells, SampleHeader};

use self::{
    charges::Charges,
    classifier::{Classifier, Work},
    collector::{Collector, Sums},
    frequency::Frequencies,
    source::{Observed, Source},
    sum::Sum,
    table::{OTHER, Owner},
};
pub use self::{
    settings::{SampleSource, Settings},
    stacks::Stacks,
    table::{Class, EVENTS, Event, classes},
};
use super::{
    Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal, attributes, distinct,
    lost::{LOST, lost},
    network_cpu,
    workload_cpu::{self, stat},
};
use crate::{
    kernel::{
        Kernel, KernelError,
        cpu_events::CpuEvent,
        cpu_sampling::CpuSampling,
        hooks::{Alternate, Hook, on_every_cpu, whole},
        maps::ByCpu,
        memory::PlannedMap,
        ring::Watch,
    },
    privileges::Task,
    telemetry::{AttributeKey, Attributes, Data, Descriptor, Instrument, Metric, Point, Readings, UnixNanos, View},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: |settings| vec![hook(settings.network_functions.source), &network_cpu::RECEIVER],
    maps: &[&RING, &CELLS, &RECEIVERS],
    hooks_needed: HooksNeeded::Each(&[&HOOK]),
    constants: |on| on.settings.network_functions.constants(on.sizing),
    losses: |_| vec![FULL, UNREADABLE, DROPPED],
    tasks: &[Task::ReadSymbols],
    caveats: |settings, kernel| caveats(&settings.network_functions, kernel),
    ..Entry::new(
        "network_functions",
        "Estimated CPU time of the network stack by event and function, from samples of all CPUs",
        &[&ESTIMATED, &VARIANCE, &TIME, &SAMPLES],
        open,
    )
};

/// The reason for stacks that did not fit into the ring.
const FULL: &str = "stack_ring_full";
/// The reason for stacks that the kernel could not read.
const UNREADABLE: &str = "stack_unreadable";
/// The reason for samples by a timer that the kernel did not take.
const DROPPED: &str = "sample_dropped";

const EVENT: AttributeKey =
    AttributeKey::derived("undercurrent.network.event", || EVENTS.iter().map(|event| event.name).collect());
const FUNCTION: AttributeKey = AttributeKey::derived("undercurrent.network.function", || {
    distinct(classes().map(|class| class.name).chain([OTHER]))
})
.or("a class of `classes`");

static ESTIMATED: Descriptor = Descriptor {
    name: "undercurrent.network.estimated_cpu.time",
    unit: "s",
    description: "CPU time of network events, estimated from samples. Softirq time belongs to the receivers of the packets.",
    instrument: Instrument::Counter,
    attributes: &[EVENT],
    view: View::Estimate {
        variance: VARIANCE.name,
        exact: network_cpu::CPU_TIME.name,
        busy: workload_cpu::CPU_TIME.name,
    },
};

/// A Poisson process with unequal samples: the variance of a sum is the sum of the squares.
static VARIANCE: Descriptor = Descriptor {
    name: "undercurrent.network.estimated_cpu.variance",
    unit: "s2",
    description: "Variance of the CPU time of network events: the sum of the squared times of its samples. The standard error of \
                  the time's growth is the square root of the variance's growth.",
    instrument: Instrument::Counter,
    attributes: &[EVENT],
    view: View::Hidden,
};

static TIME: Descriptor = Descriptor {
    name: "undercurrent.network.function.cpu.time",
    unit: "s",
    description: "CPU time of network functions on the whole node, estimated from samples. Functions exclude each other.",
    instrument: Instrument::Counter,
    attributes: &[EVENT, FUNCTION, attributes::NETWORK, attributes::cpu(true)],
    view: View::Sampled { variance: VARIANCE.name, total: EVENT.key },
};

static SAMPLES: Descriptor = Descriptor {
    name: "undercurrent.network.function.samples",
    unit: "{sample}",
    description: "Samples behind the CPU time of network functions. A share p of n samples has the relative standard error \
                  sqrt((1-p)/(p n)).",
    instrument: Instrument::Counter,
    attributes: &[EVENT, FUNCTION, attributes::NETWORK, attributes::cpu(true)],
    view: View::Hidden,
};

/// The name of the alternate with the cycle counter.
const CYCLES: &str = "cpu_cycles";
const BY_CYCLES: Alternate<'static> = whole(CYCLES, &[on_every_cpu(CpuEvent::Cycles, "cpu-cycles")]);
const BY_CLOCK: Alternate<'static> = whole("cpu_clock", &[on_every_cpu(CpuEvent::Clock, "cpu-clock")]);

/// A timer or the cycle counter interrupts a CPU.
static HOOK: Hook = sampled(&[BY_CYCLES, BY_CLOCK]);
static CYCLES_ONLY: Hook = sampled(&[BY_CYCLES]);
static CLOCK_ONLY: Hook = sampled(&[BY_CLOCK]);

/// The hooks with one source of samples. Their name is that of [`HOOK`].
pub(super) static SINGLE_SOURCES: [&Hook; 2] = [&CYCLES_ONLY, &CLOCK_ONLY];

const fn sampled(alternates: &'static [Alternate<'static>]) -> Hook {
    Hook { name: "cpu_sample", reads_timestamps: false, sees_traffic: true, within: None, alternates }
}

const fn hook(source: SampleSource) -> &'static Hook {
    match source {
        SampleSource::Auto => &HOOK,
        SampleSource::Cycles => &CYCLES_ONLY,
        SampleSource::CpuClock => &CLOCK_ONLY,
    }
}

/// The ring of stacks, in bytes.
static RING: PlannedMap = PlannedMap::new("SAMPLES", 1, |sizing| sizing.samples.max(SMALLEST_RING));
/// The counts of each CPU.
static CELLS: PlannedMap = PlannedMap::by_cpu::<SampleCells>("SAMPLE_CELLS", |sizing| sizing.cpus);

/// The last receiver on each CPU.
static RECEIVERS: PlannedMap = PlannedMap::by_cpu::<u64>("RECEIVERS", |sizing| sizing.cpus);

/// The smallest ring on every architecture's page size, in bytes.
const SMALLEST_RING: usize = 64 * 1024;
/// The largest ring: the stacks of two seconds at the highest rate of a node.
const LARGEST_RING: usize = 4 * 1024 * 1024;

/// Returns the size of the ring of stacks on a machine with `cpus` possible CPUs, in bytes.
#[must_use]
pub fn ring_size(cpus: usize) -> usize {
    // Half a second of stacks with 30 frames at 1 kHz.
    let stack = size_of::<SampleHeader>() + 8 + 30 * size_of::<u64>();
    (cpus * 500 * stack).next_power_of_two().clamp(SMALLEST_RING, LARGEST_RING)
}

/// Returns the functions that samples are classified by.
#[must_use]
pub fn functions(settings: &Settings) -> Vec<String> {
    classifier::functions(settings)
}

fn caveats(settings: &Settings, kernel: &Kernel) -> Vec<Caveat> {
    let text = match kernel.text() {
        Ok(text) => text,
        Err(error) => return vec![Caveat::Unavailable(error.to_string())],
    };
    let names = functions(settings);
    let has = |function: &&str| text.ranges.iter().any(|range| names[range.function as usize] == **function);
    let missing = |event: &&Event| event.name.ends_with("_softirq") && !event.functions.iter().any(has);
    let missing = EVENTS.iter().filter(missing);
    missing
        .map(|event| Caveat::Partial(format!("this kernel has no symbol {} ({})", event.functions[0], event.name)))
        .collect()
}

struct NetworkFunctions {
    collector: Arc<Mutex<Collector>>,
    /// Empties the ring when it is partly full.
    draining: JoinHandle<()>,
    cells: ByCpu<SampleCells>,
    sampling: CpuSampling,
    source: Source,
    frequencies: Frequencies,
    modules: Vec<String>,
    start: UnixNanos,
}

impl Drop for NetworkFunctions {
    fn drop(&mut self) {
        self.draining.abort();
    }
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let settings = &opening.settings.network_functions;
    let text = opening.kernel.text().map_err(KernelError::from)?;
    let ring = opening.kernel.ring(RING.name)?;
    let watch = ring.watch().map_err(|source| KernelError::Ring { map: RING.name, source })?;
    let collector = Arc::new(Mutex::new(Collector::new(
        ring,
        Classifier::new(settings, text),
        settings.per_cpu.unwrap_or_default(),
    )));
    let _ = opening.estimates.set(Estimates(Arc::clone(&collector)));
    let event = if opening.kernel.is_served_by(&HOOK, CYCLES) { CpuEvent::Cycles } else { CpuEvent::Clock };
    Ok(Box::new(NetworkFunctions {
        draining: tokio::spawn(drain(watch, Arc::clone(&collector))),
        collector,
        cells: opening.kernel.by_cpu(&CELLS)?,
        sampling: opening.kernel.cpu_sampling(),
        source: Source::new(event),
        frequencies: Frequencies::new(settings, event),
        modules: modules(),
        start: opening.start,
    }))
}

/// Estimated times by slot, in nanoseconds.
#[derive(Clone)]
pub struct Estimates(Arc<Mutex<Collector>>);

impl Estimates {
    /// Returns the time of the softirqs that work for a slot.
    pub fn softirqs(&self, slot: Slot) -> u64 {
        let collector = lock(&self.0);
        [Owner::Receiver, Owner::NodeSoftirq].into_iter().map(|owner| collector.charges().owned(slot, owner)).sum()
    }

    /// Returns the time of the socket calls of a slot's tasks.
    pub fn calls(&self, slot: Slot) -> u64 {
        lock(&self.0).charges().owned(slot, Owner::Task)
    }

    /// Returns the time for which softirqs interrupted the tasks of a slot.
    pub fn interrupted(&self, slot: Slot) -> u64 {
        lock(&self.0).charges().interrupted(slot)
    }
}

async fn drain(watch: Watch, collector: Arc<Mutex<Collector>>) {
    while watch.filled().await.is_ok() {
        lock(&collector).drain();
    }
}

fn lock(collector: &Mutex<Collector>) -> MutexGuard<'_, Collector> {
    collector.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names of the loaded modules; none if the kernel supports no modules.
fn modules() -> Vec<String> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

impl NetworkFunctions {
    /// Finds the functions again if modules were loaded and a stack had an unknown function of a module.
    fn find_modules(&mut self) {
        if !lock(&self.collector).take_unresolved() {
            return;
        }
        let modules = modules();
        if modules == self.modules {
            return;
        }
        match self.sampling.find_text() {
            Ok(text) => lock(&self.collector).classifier.set_text(text),
            Err(error) => {
                tracing::warn!("cannot find the functions of new modules; their time counts for callers: {error}")
            }
        }
        self.modules = modules;
    }

    /// Adapts the sampling frequency of each CPU.
    fn adapt(&mut self, observed: Vec<Observed>) {
        let online = aya::util::online_cpus().unwrap_or_default();
        let observed: Vec<_> = observed.into_iter().filter(|seen| online.contains(&seen.cpu)).collect();
        let periods = self.frequencies.choose(&observed);
        for cpu in self.frequencies.broken() {
            match self.source.event() {
                CpuEvent::Cycles => tracing::warn!(
                    "the cycle counter of CPU {cpu} counts but does not interrupt, so its samples are missing: set \
                     `signals.network_functions.source: cpu_clock`"
                ),
                _ => tracing::warn!(
                    "the timer of CPU {cpu} took no sample: the kernel hides the tasks of this CPU from perf events, or another \
                     program of a perf event runs all the time"
                ),
            }
        }
        if periods.is_empty() {
            return;
        }
        periods.iter().for_each(|(cpu, _)| self.source.restart(*cpu));
        if let Err(error) = self.sampling.set(self.source.event(), periods) {
            tracing::warn!("cannot change the sampling frequency of a CPU: {error}");
        }
    }

    fn losses(&self, cells: &[(u32, SampleCells)]) -> Metric {
        let sum = |count: fn(&SampleCells) -> u64| cells.iter().map(|(_, cells)| count(cells)).sum();
        let counts = [
            (FULL, sum(|cells| cells.full)),
            (UNREADABLE, sum(|cells| cells.unreadable)),
            (DROPPED, sum(|cells| cells.dropped)),
        ];
        let point = |(reason, count)| lost(ENTRY.name, reason, Attributes::new(), count, self.start);
        Metric { descriptor: &LOST, points: counts.map(point).into() }
    }
}

impl Signal for NetworkFunctions {
    fn forget(&mut self, slot: Slot) {
        lock(&self.collector).forget(slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        let mut cells = Vec::new();
        self.cells.for_each(|cpu, counts| cells.push((u32::try_from(cpu).unwrap_or(u32::MAX), *counts)));
        lock(&self.collector).drain();
        self.find_modules();
        let observed = self.source.observe(&cells).map_err(|source| ReadError { what: stat::SOURCE, source })?;
        let price = |cpu| observed.iter().find(|seen| seen.cpu == cpu).and_then(|seen| seen.price);
        lock(&self.collector).settle(price);
        self.adapt(observed);
        let losses = self.losses(&cells);
        let collector = lock(&self.collector);
        let metrics = metrics(collector.sums(), |class| collector.classifier.class(class), self.start);
        metrics.into_iter().chain([losses]).for_each(|metric| readings.add(Slot::NODE, metric));
        for (slot, start) in std::iter::once((Slot::NODE, self.start)).chain(workloads.slots()) {
            estimates(collector.charges(), slot, start).into_iter().for_each(|metric| readings.add(slot, metric));
        }
        Ok(())
    }
}

fn seconds(nanoseconds: u64) -> Data {
    Data::Double(nanoseconds as f64 / 1e9)
}

fn square_seconds(square_nanoseconds: u128) -> Data {
    Data::Double(square_nanoseconds as f64 / 1e18)
}

/// Returns the metrics of the events of a slot. The node has a point of every event, a workload of those with samples.
fn estimates(charges: &Charges, slot: Slot, start: UnixNanos) -> Vec<Metric> {
    let sums = EVENTS.iter().enumerate().map(|(number, event)| (event, charges.event(number, slot)));
    let sums: Vec<_> = sums.filter(|(_, sum)| slot == Slot::NODE || sum.samples > 0).collect();
    if sums.is_empty() {
        return Vec::new();
    }
    let points = |data: fn(&Sum) -> Data| {
        let of = |(event, sum): &(&Event, Sum)| Point {
            attributes: Attributes::new().with(EVENT.key, event.name),
            start,
            data: data(sum),
        };
        sums.iter().map(of).collect()
    };
    vec![
        Metric { descriptor: &ESTIMATED, points: points(|sum| seconds(sum.nanoseconds)) },
        Metric { descriptor: &VARIANCE, points: points(|sum| square_seconds(sum.squares)) },
    ]
}

/// Returns the metrics of the functions on the whole node. A function has a point after its first sample.
fn metrics<'a>(sums: &Sums, class: impl Fn(usize) -> &'a str, start: UnixNanos) -> [Metric; 2] {
    let points = |data: fn(&Sum) -> Data| {
        let point = |((work, cpu), sum): (&(Work, Option<u32>), &Sum)| {
            let attributes = Attributes::new()
                .with(EVENT.key, EVENTS[work.event].name)
                .with(FUNCTION.key, class(work.class).to_owned());
            let version = work.version.map(attributes::network);
            let attributes = version.into_iter().fold(attributes, |of, name| of.with(attributes::NETWORK.key, name));
            let attributes = cpu.iter().fold(attributes, |of, cpu| of.with(attributes::CPU, *cpu));
            Point { attributes, start, data: data(sum) }
        };
        sums.iter().map(point).collect()
    };
    [
        Metric { descriptor: &TIME, points: points(|sum| seconds(sum.nanoseconds)) },
        Metric { descriptor: &SAMPLES, points: points(|sum| Data::count(sum.samples)) },
    ]
}
