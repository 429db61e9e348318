//! `slow_packets`: spans of packets that took longer than a threshold, and of a uniform share of all packets.

mod budget;
mod settings;
mod spans;
mod stalls;
mod times;

use std::{collections::BTreeMap, time::Duration};

use opentelemetry::trace::Link;
use undercurrent_ebpf::abi::{
    ABSENT,
    latency::{Layer, ReceivePoint},
    series::Series,
    slow::{DATAGRAMS, Datagram, Records, SlowCells, SlowOwner, SlowPacket, WAKEUPS, Wakeup, flag, record},
};
use zerocopy::FromBytes as _;

pub use self::settings::{Payload, Settings, Threshold, UniformShare};
use self::{
    budget::Budget,
    spans::Packet,
    times::{Offsets, Times},
};
use super::{
    Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal, Traced, detail,
    durations::{GROUP_LATENCY, LATENCY, WORKLOAD_LATENCY},
    latency,
    lost::{LOST, lost},
    slot_words::{SlotWords, unsharded},
};
use crate::{
    kernel::{
        KernelError, clock,
        hooks::{self, Hook},
        maps::ByCpu,
        memory::PlannedMap,
        ring::{Ring, Watch},
    },
    packets::SharedGrouping,
    telemetry::{
        Attributes, Data, Exemplar, ExponentialHistogram, Metric, Point, Readings, SpanContext, UnixNanos, new_context,
    },
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    hooks: required,
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &WAITING, &CELLS, &OWNERS, &RING, &LAST_WAKEUPS, &SENT],
    constants: |on| on.settings.slow_packets.constants(),
    losses: |_| vec![OVER_BUDGET, FULL, CLOCK_STEP],
    hooks_needed: HooksNeeded::Each(&[&hooks::SOCKET_READ]),
    ..Entry::new("slow_packets", "Spans of packets that took longer than a threshold until they were read", &[], open)
};

/// The hooks of the states of a reader.
static READER_HOOKS: [&Hook; 2] = [&hooks::SCHED_WAKING, &hooks::SCHED_SWITCH];

/// The waiting packets. `receive_wait` uses them too.
pub static WAITING: PlannedMap = PlannedMap::new("WAITING", size_of::<Records>(), |_| record::ENTRIES);
/// The scratch buffers and counts by CPU.
static CELLS: PlannedMap = PlannedMap::by_cpu::<SlowCells>("SLOW", |sizing| sizing.cpus);
/// The selection of the packets of each workload.
static OWNERS: PlannedMap = PlannedMap::new("SLOW_OWNERS", size_of::<SlowOwner>(), unsharded::<1>);
/// The ring of selected packets, in bytes.
static RING: PlannedMap = PlannedMap::new("SLOW_PACKETS", 1, |_| 256 * 1024);

/// The last wakeups of tasks.
static LAST_WAKEUPS: PlannedMap =
    PlannedMap::new("LAST_WAKEUPS", size_of::<Wakeup>(), |sizing| if sizing.reader_states { WAKEUPS } else { 0 });

/// The datagrams from senders on this node.
static SENT: PlannedMap = PlannedMap::new("DATAGRAMS", size_of::<Datagram>(), |_| DATAGRAMS);

/// Returns the hooks of the path of a packet and of the states of a reader. The programs of `ip` run for each packet, so that spans have
/// this time only if the layer is measured.
fn required(settings: &super::Settings) -> Vec<&'static Hook> {
    let ip = settings.latency.layers().contains(Layer::Ip).then_some(&hooks::IP);
    let path = [&hooks::TRANSPORT, detail::arrival_hook(settings), &hooks::SOCKET_READ];
    let states = READER_HOOKS.into_iter().filter(|_| settings.slow_packets.reader_states);
    ip.into_iter().chain(path).chain(states).collect()
}

/// The reason for selected packets beyond the budget.
const OVER_BUDGET: &str = "over_budget";
/// The reason for selected packets that did not fit into the ring.
const FULL: &str = "slow_ring_full";
/// The reason for selected packets whose receive timestamp is ambiguous, because the wall clock was set.
const CLOCK_STEP: &str = "clock_step";

/// The number of packets of a stall.
const PACKETS: &str = "undercurrent.packets";
/// Most links of a span: the default limit of OpenTelemetry SDKs.
const LINKS: usize = 128;
/// Most characters of an exemplar's attributes: Prometheus accepts 128, and the ids take 63.
const EXEMPLAR: usize = 65;

/// The fewest packets of an interval from which the 99.9th percentile is computed.
const FEWEST: u64 = 1_000;

struct SlowPackets {
    settings: Settings,
    ring: Ring,
    /// `None` after it was taken.
    watch: Option<Watch>,
    cells: ByCpu<SlowCells>,
    owners: SlotWords,
    /// The adaptive thresholds of workloads, the node included, and their durations at the previous reading. Without an entry, the
    /// lowest threshold applies.
    thresholds: BTreeMap<Slot, Duration>,
    before: BTreeMap<Slot, ExponentialHistogram>,
    offsets: Offsets,
    budget: Budget,
    grouping: Option<SharedGrouping>,
    /// True if the programs see all changes of a reader's state.
    has_reader_states: bool,
    /// Packets beyond the budget of spans.
    over_budget: BTreeMap<Slot, u64>,
    ambiguous: u64,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let settings = opening.settings.slow_packets.clone();
    let ring = opening.kernel.ring(RING.name)?;
    let watch = ring.watch().map_err(|source| KernelError::Ring { map: RING.name, source })?;
    let threshold = settings.threshold(None);
    if let Err(error) = opening.kernel.slow_threshold().set(threshold) {
        tracing::warn!("cannot set the threshold of slow packets: {error}");
    }
    Ok(Box::new(SlowPackets {
        ring,
        watch: Some(watch),
        cells: opening.kernel.by_cpu(&CELLS)?,
        owners: SlotWords::unsharded(opening.kernel, &OWNERS, SlowOwner::WORDS)?,
        thresholds: BTreeMap::new(),
        before: BTreeMap::new(),
        offsets: Offsets::new(clock::offset()),
        budget: Budget::new(settings.budget.get()),
        grouping: opening.grouping.cloned(),
        has_reader_states: READER_HOOKS.iter().all(|hook| opening.kernel.serves(hook)),
        over_budget: BTreeMap::new(),
        ambiguous: 0,
        start: opening.start,
        settings,
    }))
}

impl SlowPackets {
    /// Sets the threshold of each workload for the durations since the last reading.
    fn set_thresholds(&mut self, readings: &Readings) {
        let now = durations(readings);
        for (slot, durations) in &now {
            let recent = self.before.get(slot).map_or_else(|| durations.clone(), |before| durations.since(before));
            let threshold = self.settings.threshold(quantile(&recent));
            self.owners.set(*slot, SlowOwner::THRESHOLD, u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX));
            self.thresholds.insert(*slot, threshold);
        }
        self.before = now;
    }

    /// Returns a packet that may become a span.
    fn candidate(&mut self, record: &[u8]) -> Option<Candidate> {
        let (mut event, payload) = SlowPacket::read_from_prefix(record).ok()?;
        if !self.has_reader_states {
            event.reader = [0; 2];
        }
        let point = *ReceivePoint::ALL.get(usize::from(event.point))?;
        let Some(times) = self.offsets.times(&event) else {
            self.ambiguous += 1;
            return None;
        };
        // Programs may have compared times before and after a step of the clock.
        let threshold = self.thresholds.get(&Slot(event.slot)).copied();
        let threshold = threshold.unwrap_or_else(|| self.settings.threshold(None));
        let is_slow = u128::from(times.age()) > threshold.as_nanos() / 2;
        let payload = payload.get(..event.length as usize).unwrap_or_default();
        let parent = self.settings.payload.parent(payload);
        let is_sampled = parent.as_ref().is_none_or(|parent| parent.is_sampled() || self.settings.unsampled);
        let candidate = Candidate { event, point, times, parent };
        (is_sampled && (is_slow || candidate.is_uniform())).then_some(candidate)
    }

    /// Returns the spans of a packet, or of all packets of a stall; `None` if the budget is exhausted.
    fn traced(&mut self, group: &[Candidate]) -> Option<Traced> {
        let (first, others) = group.split_first()?;
        let slot = Slot(first.event.slot);
        if !self.budget.take(slot) {
            *self.over_budget.entry(slot).or_default() += group.len() as u64;
            return None;
        }
        // A stall belongs to all of its requests.
        let parent = first.parent.as_ref().filter(|_| others.is_empty()).unwrap_or(&SpanContext::NONE);
        let context = new_context(parent);
        let Candidate { event, point, times, .. } = first;
        let packet = Packet { event, point: *point, times: *times };
        let mut attributes = packet.attributes(self.settings.addresses);
        let exemplar = Exemplar {
            context: context.clone(),
            value: Duration::from_nanos(times.age()).as_secs_f64(),
            time: times.end,
            attributes: exemplar_attributes(&attributes),
        };
        if !others.is_empty() {
            attributes.set(PACKETS, i64::try_from(group.len()).unwrap_or(i64::MAX));
        }
        let mut spans = packet.spans(&context, parent, &attributes);
        if !others.is_empty()
            && let Some(span) = spans.first_mut()
        {
            let parents = group.iter().filter_map(|candidate| candidate.parent.clone());
            span.links.links = parents.take(LINKS).map(Link::with_context).collect();
        }
        let attributes = self.series(event, *point);
        Some(Traced { slot, spans, metric: &latency::DURATION, attributes, exemplar })
    }

    /// Returns the attributes of the histogram that has the packet.
    fn series(&self, event: &SlowPacket, point: ReceivePoint) -> Attributes {
        let attributes = (latency::KIND.describe)(Series::Receive(point));
        let grouping = self.grouping.as_ref().filter(|_| event.group != ABSENT).map(|grouping| grouping.borrow());
        let group = grouping.as_ref().and_then(|all| all.live().iter().find(|group| group.index.0 == event.group));
        match group {
            Some(group) => group.add_attributes(attributes),
            None => attributes,
        }
    }

    /// Returns the packets of a workload beyond the budget.
    fn over_budget(&self, slot: Slot) -> u64 {
        let by_programs: u64 = self.owners.sums(slot).iter().skip(SlowOwner::OVER_BUDGET).sum();
        by_programs + self.over_budget.get(&slot).copied().unwrap_or(0)
    }

    /// Returns the losses of the node.
    fn losses(&self) -> Metric {
        let mut full = 0;
        self.cells.for_each(|_, cells| full += cells.full);
        let counts = [(OVER_BUDGET, self.over_budget(Slot::NODE)), (FULL, full), (CLOCK_STEP, self.ambiguous)];
        let point = |(reason, count)| lost(ENTRY.name, reason, Attributes::new(), count, self.start);
        Metric { descriptor: &LOST, points: counts.map(point).into() }
    }
}

impl Signal for SlowPackets {
    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.offsets.update(clock::offset(), clock::monotonic());
        readings.add(Slot::NODE, self.losses());
        for (slot, start) in workloads.slots() {
            let count = Some(self.over_budget(slot)).filter(|count| *count > 0);
            let point = count.map(|count| lost(ENTRY.name, OVER_BUDGET, Attributes::new(), count, start));
            readings.add(slot, Metric { descriptor: &LOST, points: point.into_iter().collect() });
        }
        Ok(())
    }

    fn adapt(&mut self, readings: &Readings) {
        if self.settings.threshold == Threshold::Adaptive {
            self.set_thresholds(readings);
        }
    }

    fn reconfigure(&mut self, settings: &crate::Settings) {
        self.settings.addresses = settings.slow_packets.addresses;
    }

    fn forget(&mut self, slot: Slot) {
        self.owners.clear(slot);
        self.budget.forget(slot);
        self.thresholds.remove(&slot);
        self.before.remove(&slot);
        self.over_budget.remove(&slot);
    }

    fn watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    fn spans(&mut self) -> Vec<Traced> {
        self.offsets.update(clock::offset(), clock::monotonic());
        let mut candidates = Vec::new();
        // The copy has payload, and ends with the loop.
        while let Some(record) = self.ring.next(<[u8]>::to_vec) {
            candidates.extend(self.candidate(&record));
        }
        stalls::groups(candidates).iter().filter_map(|group| self.traced(group)).collect()
    }
}

/// A packet that may become a span.
#[derive(Clone)]
struct Candidate {
    event: SlowPacket,
    point: ReceivePoint,
    times: Times,
    /// The context in the packet's payload.
    parent: Option<SpanContext>,
}

impl Candidate {
    const fn is_uniform(&self) -> bool {
        self.event.flags & flag::UNIFORM != 0
    }
}

/// Returns the attributes of an exemplar: the reader's name, if it fits.
fn exemplar_attributes(packet: &Attributes) -> Attributes {
    const KEY: &str = "process.executable.name";
    let name = packet.get(KEY).map(ToString::to_string);
    match name.filter(|name| KEY.len() + name.chars().count() <= EXEMPLAR) {
        Some(name) => Attributes::new().with(KEY, name),
        None => Attributes::new(),
    }
}

/// Returns the durations at the last layer, by slot.
fn durations(readings: &Readings) -> BTreeMap<Slot, ExponentialHistogram> {
    let is_read = |point: &Point| point.attributes.get(latency::LAYER) == Some(&latency::READ.into());
    let mut durations: BTreeMap<Slot, ExponentialHistogram> = BTreeMap::new();
    for (slot, point) in readings.points_by_slot(&latency::DURATION).filter(|(_, point)| is_read(point)) {
        let Data::Histogram(histogram) = &point.data else { continue };
        durations.entry(slot).and_modify(|total| total.add(histogram)).or_insert_with(|| histogram.clone());
    }
    durations
}

/// Returns the 99.9th percentile of durations; `None` if there are too few.
fn quantile(durations: &ExponentialHistogram) -> Option<Duration> {
    let quantile = (durations.count() >= FEWEST).then(|| durations.quantile(0.999))??;
    // The lower bound of its bucket: one packet in a thousand or more may have equal durations, and those are slow.
    Some(Duration::from_secs_f64(quantile / (-f64::from(durations.scale)).exp2().exp2()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use undercurrent_ebpf::abi::slow::{PASSING, passing};

    /// The clocks of arm64 (25 MHz) and of Hyper-V (10 MHz) repeat the lowest bits of their timestamps.
    #[test]
    fn packets_of_coarse_clocks_rarely_share_an_entry() {
        const START: u64 = 1_700_000_000_000_000_000;
        for step in [1, 40, 100, 1_000] {
            let entries: BTreeSet<_> = (0..PASSING as u64).map(|packet| passing(START + packet * step)).collect();
            assert!(entries.len() >= PASSING / 2, "{step} ns: {} of {PASSING} entries", entries.len());
        }
    }
}
