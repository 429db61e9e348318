//! Signals that consist of packet durations. The eBPF programs record them in one map per CPU and in one map per
//! workload.

mod owned;

use std::ops::Range;

use undercurrent_ebpf::abi::{
    group::GROUPED,
    histogram::BUCKETS,
    latency::{DurationCells, Layer, ReceivePoint, SERIES, Series, Transport},
    loss::{PACKET_LOSSES, PacketLoss},
};

pub use self::owned::SlotHistograms;
use super::{
    OpenContext, OpenError, ReadError, SharedGrouping, Signal,
    internal::{LOST, lost},
};
use crate::{
    kernel::{maps::ByCpu, memory::PlannedMap},
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
    /// The reasons why packets are missing from the histograms.
    pub losses: &'static [PacketLoss],
    /// Returns the attributes of a series.
    pub describe: fn(Series) -> Attributes,
}

impl DurationKind {
    /// Returns the values of `undercurrent.reason`, including the reason for durations above the histogram's range.
    #[must_use]
    pub fn reasons(&self) -> Vec<&'static str> {
        self.losses.iter().map(|loss| reason(*loss)).chain([ABOVE_RANGE]).collect()
    }
}

/// The reason of durations beyond the last bucket.
pub const ABOVE_RANGE: &str = "above_range";

/// Durations by CPU and series.
pub static LATENCY: PlannedMap = PlannedMap::new("LATENCY", size_of::<DurationCells>(), |sizing| sizing.cpus);
/// Durations by workload slot.
pub static WORKLOAD_LATENCY: PlannedMap =
    PlannedMap::new("WORKLOAD_LATENCY", size_of::<u64>(), |sizing| sizing.slots() * sizing.by_workload().slot());
/// Durations by group.
pub static GROUP_LATENCY: PlannedMap =
    PlannedMap::new("GROUP_LATENCY", size_of::<u64>(), |sizing| sizing.groups() * sizing.by_workload().group());

/// A signal that consists of packet durations.
pub struct Durations {
    /// The definition of the signal.
    pub kind: &'static DurationKind,
    /// The node's measurements, workloads included.
    pub cells: ByCpu<DurationCells>,
    /// The measurements of workloads. `None` if measurements are not attributed.
    pub owned: Option<SlotHistograms>,
    /// The measurements of groups. `None` if packets are not grouped.
    pub grouped: Option<(SlotHistograms, SharedGrouping)>,
    /// The scale of all histograms.
    pub scale: Scale,
    /// Start time of the node's measurements.
    pub start: UnixNanos,
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
            let owned = SlotHistograms::of_groups(words, layout, kind, scale);
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
                readings.add(group.slot, metric(measured(owned, group.index(), self.served).map(point).collect()));
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
            for loss in self.kind.losses.iter().filter(|loss| concerns(**loss, Series::ALL[index])) {
                let count = total.lost[*loss as usize];
                if count == 0 && !expected(*loss, Series::ALL[index]) {
                    continue;
                }
                losses.push(lost(self.kind.signal, reason(*loss), attributes.clone(), count, self.start));
            }
            // The topmost bucket holds durations above the range. Its nominal upper bound does not apply to them.
            let above = slots.last().copied().unwrap_or(0);
            losses.push(lost(self.kind.signal, ABOVE_RANGE, attributes.clone(), above, self.start));
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

/// Returns the non-empty histograms of a slot, by series.
fn measured(owned: &mut SlotHistograms, slot: Slot, served: [bool; SERIES]) -> impl Iterator<Item = (Series, Data)> {
    let histograms = owned.read(slot, served).filter(|(_, histogram)| histogram.count() > 0);
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

/// Returns true if the loss reason can occur in the series.
const fn concerns(loss: PacketLoss, series: Series) -> bool {
    let Series::Receive(ReceivePoint { layer, transport, .. }) = series else { return true };
    let in_socket = matches!(layer, Layer::SocketEnqueued | Layer::SocketRead);
    match loss {
        PacketLoss::HeadOfLine => in_socket && matches!(transport, Some(Transport::Tcp)),
        PacketLoss::Unmatched => matches!((layer, transport), (Layer::SocketEnqueued, Some(Transport::Udp))),
        _ => true,
    }
}

/// Returns true if the loss reason is exported even if its count is zero. It is not if it requires a filter, or if only
/// one of a hook's alternates can lose packets.
const fn expected(loss: PacketLoss, series: Series) -> bool {
    let enqueued = matches!(series, Series::Receive(ReceivePoint { layer: Layer::SocketEnqueued, .. }));
    match loss {
        PacketLoss::Unfiltered => false,
        PacketLoss::HeadOfLine | PacketLoss::Unmatched => !enqueued,
        _ => true,
    }
}

/// Returns the value of `undercurrent.reason`.
pub const fn reason(loss: PacketLoss) -> &'static str {
    match loss {
        PacketLoss::NoTimestamp => "no_timestamp",
        PacketLoss::TransmitTimestamp => "transmit_timestamp",
        PacketLoss::Negative => "negative",
        PacketLoss::Unmatched => "missing_start",
        PacketLoss::Unfiltered => "not_filterable",
        PacketLoss::HeadOfLine => "head_of_line",
    }
}
