//! Signals that consist of packet durations. The eBPF programs record them in one map per CPU and in one map per
//! workload.

mod owned;

use std::ops::Range;

use undercurrent_ebpf::abi::{
    group::GROUPED,
    histogram::BUCKETS,
    loss::{PACKET_LOSSES, PacketLoss},
    series::{DurationCells, SERIES, Series},
};

pub use self::owned::{GroupHistograms, OwnedHistograms, OwnerIndex, SlotHistograms};
use super::{
    LossConditions, OpenContext, OpenError, ReadError, Signal,
    lost::{LOST, lost},
};
use crate::{
    kernel::{Kernel, KernelError, maps::ByCpu, memory::PlannedMap},
    packets::{GroupWords, SharedGrouping},
    telemetry::{Attributes, Data, Descriptor, ExponentialHistogram, Metric, Point, Readings, Scale, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The definition of a duration signal: its metric, series and loss reasons.
pub struct DurationKind {
    /// The name of the signal.
    pub signal: &'static str,
    /// The metric of the signal.
    pub metric: &'static Descriptor,
    /// The indices of its series.
    pub series: Range<usize>,
    /// Returns the reasons why packets of a series can be missing from its histogram.
    pub losses: fn(Series, &LossConditions) -> Vec<PacketLoss>,
    /// Returns the attributes of a series.
    pub describe: fn(Series) -> Attributes,
}

impl DurationKind {
    /// Returns the values of `undercurrent.reason` that can occur, including the reason for durations above the
    /// histogram's range.
    #[must_use]
    pub fn reasons(&self, on: &LossConditions) -> Vec<&'static str> {
        let occur =
            |loss: &PacketLoss| self.series.clone().any(|index| (self.losses)(Series::ALL[index], on).contains(loss));
        PacketLoss::ALL.into_iter().filter(occur).map(reason).chain([ABOVE_RANGE]).collect()
    }
}

/// The reason of durations beyond the last bucket.
pub const ABOVE_RANGE: &str = "above_range";

/// Durations by CPU and series.
pub static LATENCY: PlannedMap = PlannedMap::by_cpu::<DurationCells>("LATENCY", |sizing| sizing.cpus);
/// Durations by workload slot.
pub static WORKLOAD_LATENCY: PlannedMap =
    PlannedMap::new("WORKLOAD_LATENCY", size_of::<u64>(), |sizing| sizing.slots() * sizing.by_workload().slot());
/// Durations by group.
pub static GROUP_LATENCY: PlannedMap =
    PlannedMap::new("GROUP_LATENCY", size_of::<u64>(), |sizing| sizing.groups() * sizing.by_workload().group());

/// Returns the words of groups in [`GROUP_LATENCY`].
///
/// # Errors
/// If the map cannot be mapped into memory.
pub fn group_words(kernel: &Kernel) -> Result<GroupWords, KernelError> {
    Ok(GroupWords { words: kernel.words(&GROUP_LATENCY)?, first: 0, length: kernel.histograms().group() })
}

/// A signal that consists of packet durations.
pub struct Durations {
    /// The definition of the signal.
    pub kind: &'static DurationKind,
    /// The measurements of packets that belong to no workload and to no group. Programs record each packet once.
    pub cells: ByCpu<DurationCells>,
    /// The measurements of workloads. `None` if measurements are not attributed.
    pub owned: Option<SlotHistograms>,
    /// The measurements of groups. `None` if packets are not grouped.
    pub grouped: Option<(GroupHistograms, SharedGrouping)>,
    /// The scale of all histograms.
    pub scale: Scale,
    /// Start time of the node's measurements.
    pub start: UnixNanos,
    /// The conditions of losses.
    pub losses: LossConditions,
    /// Series with working hooks. Other series have no points, not even zero points.
    pub served: [bool; SERIES],
}

impl Durations {
    /// Opens the maps. `served` returns true if the hooks of a series work.
    ///
    /// # Errors
    /// If a map cannot be mapped into memory.
    pub fn open(
        opening: &OpenContext<'_>,
        kind: &'static DurationKind,
        served: impl Fn(Series) -> bool,
    ) -> Result<Box<dyn Signal>, OpenError> {
        let scale = opening.packets.scale;
        let layout = opening.kernel.histograms();
        let owned =
            || Ok::<_, OpenError>(SlotHistograms::new(opening.kernel.words(&WORKLOAD_LATENCY)?, layout, kind, scale));
        let grouped = |grouping: &SharedGrouping| {
            let words = opening.kernel.words(&GROUP_LATENCY)?;
            let owned = GroupHistograms::new(words, layout, kind, scale);
            Ok::<_, OpenError>((owned, SharedGrouping::clone(grouping)))
        };
        let grouping = opening.grouping.filter(|_| kind.series.end <= GROUPED);
        Ok(Box::new(Self {
            kind,
            cells: opening.kernel.by_cpu(&LATENCY)?,
            owned: opening.kernel.by_workload().then(owned).transpose()?,
            grouped: grouping.map(grouped).transpose()?,
            scale,
            start: opening.start,
            losses: opening.losses,
            served: Series::ALL.map(|series| kind.series.contains(&series.index()) && served(series)),
        }))
    }

    /// Adds the points of workload slots, with their start times, of groups, and of the node.
    pub fn add_to(&mut self, readings: &mut Readings, slots: impl Iterator<Item = (Slot, UnixNanos)>) {
        let DurationKind { metric, describe, .. } = *self.kind;
        let metric = |points| Metric { descriptor: metric, points };
        if let Some(owned) = &mut self.owned {
            for (slot, start) in slots {
                let point = |(series, data)| Point { attributes: describe(series), start, data };
                readings.add(slot, metric(measured(owned, slot, self.served).map(point).collect()));
            }
        }
        if let Some((owned, grouping)) = &mut self.grouped {
            for group in grouping.borrow().live() {
                let attributes = |series| group.add_attributes(describe(series));
                let point = |(series, data)| Point { attributes: attributes(series), start: group.start, data };
                readings.add(group.slot, metric(measured(owned, group.index, self.served).map(point).collect()));
            }
        }
        self.add_node_to(readings);
    }

    fn add_node_to(&self, readings: &mut Readings) {
        let (mut durations, mut losses) = (Vec::new(), Vec::new());
        for index in self.kind.series.clone().filter(|index| self.served[*index]) {
            let total = self.total(index);
            let attributes = (self.kind.describe)(Series::ALL[index]);
            let slots = &total.buckets[..self.scale.buckets()];
            // The topmost bucket holds durations above the range. Its nominal upper bound does not apply to them.
            let above = (ABOVE_RANGE, slots.last().copied().unwrap_or(0));
            let counts = PacketLoss::ALL.into_iter().map(|loss| (reason(loss), total.lost[loss as usize]));
            let expected = regular((self.kind.losses)(Series::ALL[index], &self.losses));
            let exported = counts.chain([above]).filter(|(reason, count)| *count > 0 || expected.contains(reason));
            let point = |(reason, count)| lost(self.kind.signal, reason, attributes.clone(), count, self.start);
            losses.extend(exported.map(point));
            let histogram = ExponentialHistogram::from_slots(self.scale, slots, total.sum);
            if histogram.count() > 0 {
                durations.push(Point { attributes, start: self.start, data: Data::Histogram(histogram) });
            }
        }
        readings.add(Slot::NODE, Metric { descriptor: self.kind.metric, points: durations });
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: losses });
    }

    /// Returns the sum of a series over all CPUs.
    fn total(&self, index: usize) -> Total {
        let mut total = Total { buckets: [0; BUCKETS], sum: 0, lost: [0; PACKET_LOSSES] };
        self.cells.for_each(|_, cells| {
            let histogram = &cells.histograms[index];
            total.buckets.iter_mut().zip(histogram.buckets).for_each(|(total, slot)| *total += slot);
            total.sum += histogram.sum;
            total.lost.iter_mut().zip(cells.lost[index]).for_each(|(total, lost)| *total += lost);
        });
        total
    }
}

/// Returns the non-empty histograms of an owner, by series.
fn measured<I: OwnerIndex>(
    owned: &mut OwnedHistograms<I>,
    owner: I,
    served: [bool; SERIES],
) -> impl Iterator<Item = (Series, Data)> {
    let histograms = owned.read(owner, served).filter(|(_, histogram)| histogram.count() > 0);
    histograms.map(|(series, histogram)| (Series::ALL[series], Data::Histogram(histogram)))
}

struct Total {
    buckets: [u64; BUCKETS],
    sum: u64,
    lost: [u64; PACKET_LOSSES],
}

impl Signal for Durations {
    fn forget(&mut self, slot: Slot) {
        if let Some(owned) = &self.owned {
            owned.clear(slot);
        }
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.add_to(readings, workloads.slots());
        Ok(())
    }
}

/// Returns the reasons that are exported from the start. [`PacketLoss::Negative`] requires a step of the clock, and is exported
/// from its first event.
pub fn regular(losses: impl IntoIterator<Item = PacketLoss>) -> Vec<&'static str> {
    losses.into_iter().filter(|loss| *loss != PacketLoss::Negative).map(reason).collect()
}

/// Returns the value of `undercurrent.reason`.
pub const fn reason(loss: PacketLoss) -> &'static str {
    match loss {
        PacketLoss::NoTimestamp => "no_timestamp",
        PacketLoss::TransmitTimestamp => "transmit_timestamp",
        PacketLoss::Negative => "negative",
        PacketLoss::MissingStart => "missing_start",
        PacketLoss::NotFilterable => "not_filterable",
        PacketLoss::HeadOfLine => "head_of_line",
    }
}
