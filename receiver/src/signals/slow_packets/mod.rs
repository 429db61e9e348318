//! `slow_packets`: spans of packets that took longer than a threshold, and of a uniform share of all packets.

mod budget;
mod settings;
mod spans;
mod times;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use undercurrent_ebpf::abi::{
    ABSENT,
    latency::{ReceivePoint, Series},
    slow::{Choice, Records, SlowCells, SlowPacket, flag, record},
};
use zerocopy::FromBytes as _;

pub use self::settings::{Budget, Settings, Threshold, UniformShare};
use self::{budget::Tokens, spans::Packet, times::Offsets};
use super::{
    Entry, HooksNeeded, OpenContext, OpenError, ReadError, SharedGrouping, Signal, Traced,
    durations::{GROUP_LATENCY, LATENCY, WORKLOAD_LATENCY},
    internal::{LOST, lost},
    latency,
};
use crate::{
    kernel::{
        clock,
        hooks::{self, Hook},
        maps::ByCpu,
        memory::PlannedMap,
        ring::Ring,
        slow::SlowThreshold,
    },
    telemetry::{
        Attributes, Data, Exemplar, ExponentialHistogram, Metric, Parent, Point, Readings, SpanContext, SpanId,
        TraceId, UnixNanos,
    },
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    name: "slow_packets",
    summary: "Spans of packets that took longer than a threshold until they were read",
    metrics: &[],
    hooks: |_| HOOKS.to_vec(),
    maps: &[&LATENCY, &WORKLOAD_LATENCY, &GROUP_LATENCY, &WAITING, &CELLS, &RING],
    losses: |_| vec![OVER_BUDGET, FULL, CLOCK_STEP],
    hooks_needed: HooksNeeded::Each(&[&hooks::SOCKET_READ]),
    caveats: |_, _| Vec::new(),
    open,
};

/// The hooks of the path of a packet.
static HOOKS: [&Hook; 4] = [&hooks::IP, &hooks::TRANSPORT, &hooks::SOCKET_ENQUEUED, &hooks::SOCKET_READ];

/// The waiting packets. `receive_wait` uses them too.
pub static WAITING: PlannedMap = PlannedMap::new("WAITING", size_of::<Records>(), |_| record::ENTRIES);
/// The scratch buffers and counts by CPU.
static CELLS: PlannedMap = PlannedMap::new("SLOW", size_of::<SlowCells>(), |sizing| sizing.cpus);
/// The ring of selected packets, in bytes.
static RING: PlannedMap = PlannedMap::new("SLOW_PACKETS", 1, |_| 256 * 1024);

/// The reason for selected packets beyond the budget.
const OVER_BUDGET: &str = "over_budget";
/// The reason for selected packets that did not fit into the ring.
const FULL: &str = "slow_ring_full";
/// The reason for selected packets whose receive timestamp is ambiguous, because the wall clock was set.
const CLOCK_STEP: &str = "clock_step";

/// The fewest packets of an interval from which the 99.9th percentile is computed.
const FEWEST: u64 = 1_000;

struct SlowPackets {
    settings: Settings,
    ring: Ring,
    cells: ByCpu<SlowCells>,
    control: SlowThreshold,
    threshold: Duration,
    /// The durations at the previous reading.
    before: Option<ExponentialHistogram>,
    offsets: Offsets,
    tokens: Tokens,
    grouping: Option<SharedGrouping>,
    over_budget: u64,
    ambiguous: u64,
    start: UnixNanos,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let settings = opening.settings.slow_packets.clone();
    let mut signal = SlowPackets {
        ring: opening.kernel.ring(RING.name)?,
        cells: opening.kernel.by_cpu(&CELLS)?,
        control: opening.kernel.slow_threshold(),
        threshold: Duration::ZERO,
        before: None,
        offsets: Offsets::new(clock::offset()),
        tokens: Tokens::new(settings.budget.get()),
        grouping: opening.grouping.cloned(),
        over_budget: 0,
        ambiguous: 0,
        start: opening.start,
        settings,
    };
    signal.adapt(None);
    Ok(Box::new(signal))
}

impl SlowPackets {
    /// Sets the threshold for the 99.9th percentile of the last interval.
    fn adapt(&mut self, quantile: Option<Duration>) {
        let threshold = self.settings.threshold(quantile);
        if threshold == self.threshold {
            return;
        }
        match self.control.set(threshold) {
            Ok(()) => self.threshold = threshold,
            Err(error) => tracing::warn!("cannot set the threshold of slow packets: {error}"),
        }
    }

    /// Returns the 99.9th percentile of the durations since the last reading; `None` if there are too few.
    fn quantile(&mut self, readings: &Readings) -> Option<Duration> {
        let now = total(readings)?;
        let recent = self.before.as_ref().map_or_else(|| now.clone(), |before| now.since(before));
        self.before = Some(now);
        let quantile = (recent.count() >= FEWEST).then(|| recent.quantile(0.999))??;
        Some(Duration::from_secs_f64(quantile))
    }

    fn trace(&mut self, record: &[u8]) -> Option<Traced> {
        let (event, _) = SlowPacket::read_from_prefix(record).ok()?;
        let point = *ReceivePoint::ALL.get(usize::from(event.point))?;
        let Some(times) = self.offsets.times(&event) else {
            self.ambiguous += 1;
            return None;
        };
        // Programs compared times before and after a step of the clock.
        if event.flags & flag::UNIFORM == 0 && u128::from(times.age()) <= self.threshold.as_nanos() / 2 {
            return None;
        }
        if !self.tokens.take() {
            self.over_budget += 1;
            return None;
        }
        let packet = Packet { event: &event, point, times };
        let context = SpanContext { trace: TraceId::random(), span: SpanId::random() };
        Some(Traced {
            slot: Slot(event.slot),
            spans: packet.spans(context, Parent::None, self.settings.redact_addresses),
            metric: &latency::DURATION,
            attributes: self.series(&event, point),
            exemplar: Exemplar {
                context,
                value: Duration::from_nanos(times.age()).as_secs_f64(),
                time: times.end,
                attributes: Attributes::new(),
            },
        })
    }

    /// Returns the attributes of the histogram that has the packet.
    fn series(&self, event: &SlowPacket, point: ReceivePoint) -> Attributes {
        let attributes = (latency::KIND.describe)(Series::Receive(point));
        let grouping = self.grouping.as_ref().filter(|_| event.group != ABSENT).map(|grouping| grouping.borrow());
        let group = grouping.as_ref().and_then(|all| all.live().iter().find(|group| group.number == event.group));
        match group {
            Some(group) => group.add_attributes(attributes),
            None => attributes,
        }
    }

    fn losses(&self) -> Metric {
        let (mut over_budget, mut full) = (self.over_budget, 0);
        self.cells.for_each(|_, cells| {
            over_budget += cells.over_budget[Choice::Slow as usize];
            full += cells.full;
        });
        let counts = [(OVER_BUDGET, over_budget), (FULL, full), (CLOCK_STEP, self.ambiguous)];
        let point = |(reason, count)| lost(ENTRY.name, reason, Attributes::new(), count, self.start);
        Metric { descriptor: &LOST, points: counts.map(point).into() }
    }
}

impl Signal for SlowPackets {
    fn read(&mut self, _: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        if self.settings.threshold == Threshold::Adaptive {
            let quantile = self.quantile(readings);
            self.adapt(quantile);
        }
        readings.add(Slot::NODE, self.losses());
        Ok(())
    }

    fn spans(&mut self) -> Vec<Traced> {
        self.offsets.update(clock::offset(), monotonic());
        let mut traced = Vec::new();
        while let Some(record) = self.ring.next(<[u8]>::to_vec) {
            traced.extend(self.trace(&record));
        }
        traced
    }
}

/// Returns the durations at the last layer, of all workloads; `None` if they are not measured.
fn total(readings: &Readings) -> Option<ExponentialHistogram> {
    let is_read = |point: &&Point| point.attributes.get(latency::LAYER) == Some(&latency::READ.into());
    let points = readings.points(&latency::DURATION).filter(is_read);
    points.fold(None, |total: Option<ExponentialHistogram>, point| match (&point.data, total) {
        (Data::Histogram(histogram), None) => Some(histogram.clone()),
        (Data::Histogram(histogram), Some(mut total)) => {
            total.add(histogram);
            Some(total)
        }
        (_, total) => total,
    })
}

/// Returns nanoseconds of the monotonic clock.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)).unwrap_or(0)
}
