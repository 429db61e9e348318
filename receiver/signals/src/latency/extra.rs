//! The `extra_layers` of `latency`: kernel functions with a packet as parameter.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::{
    extra,
    latency::IpVersion,
    loss::{PACKET_LOSSES, PacketLoss},
};

use crate::{
    LossConditions, OpenContext, ReadError, Signal, attributes,
    durations::{ABOVE_RANGE, DurationKind, reason, regular},
    kernel::{
        Kernel, KernelError,
        maps::Words,
        memory::{ByFunction, PlannedMap},
    },
    lost::{LOST, lost},
    packets::{GroupWords, SharedGrouping},
    telemetry::{Attributes, Data, ExponentialHistogram, Metric, Point, Readings, Scale, UnixNanos},
    workloads::{Slot, Workloads},
};

/// Durations by slot or group, and by function.
pub static EXTRA_LATENCY: PlannedMap = PlannedMap::new("EXTRA_LATENCY", size_of::<u64>(), |sizing| {
    let ByFunction { shards, shard, groups, .. } = sizing.by_function();
    (groups + sizing.groups()) * shards * shard
});

/// Returns the words of groups in [`EXTRA_LATENCY`].
///
/// # Errors
/// If the map cannot be mapped into memory.
pub fn group_words(kernel: &Kernel) -> Result<GroupWords, KernelError> {
    let layout = kernel.by_function();
    let length = layout.owner();
    Ok(GroupWords { words: kernel.words(&EXTRA_LATENCY)?, first: layout.groups * length, length })
}

/// Returns the losses that can occur at extra layers.
pub fn losses(on: &LossConditions) -> impl Iterator<Item = PacketLoss> {
    let filtered = on.filtered.then_some(PacketLoss::NotFilterable);
    [PacketLoss::NoTimestamp, PacketLoss::TransmitTimestamp, PacketLoss::Negative].into_iter().chain(filtered)
}

/// The durations of extra layers.
pub struct ExtraLatency {
    kind: &'static DurationKind,
    words: Words,
    layout: ByFunction,
    scale: Scale,
    start: UnixNanos,
    /// The attached functions with their layer numbers.
    functions: Vec<(usize, String)>,
    /// The groups of packets. `None` if packets are not grouped.
    grouping: Option<SharedGrouping>,
    losses: LossConditions,
}

impl ExtraLatency {
    /// Opens the map. Returns `None` if no function is attached.
    ///
    /// # Errors
    /// If the map cannot be mapped into memory.
    pub fn open(opening: &OpenContext<'_>, kind: &'static DurationKind) -> Result<Option<Self>, KernelError> {
        let functions: Vec<_> =
            opening.kernel.functions().map(|(layer, function)| (layer, function.to_owned())).collect();
        if functions.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            kind,
            words: opening.kernel.words(&EXTRA_LATENCY)?,
            layout: opening.kernel.by_function(),
            scale: opening.packets.scale,
            start: opening.start,
            functions,
            grouping: opening.grouping.cloned(),
            losses: opening.losses,
        }))
    }

    /// Returns the words of a slot or group, by shard.
    fn shards(&self, owner: usize) -> impl Iterator<Item = &[AtomicU64]> {
        let first = owner * self.layout.owner();
        self.words.slice(first..first + self.layout.owner()).chunks_exact(self.layout.shard)
    }

    /// Returns the sum over all shards, for a slot or group at a layer.
    fn total(&self, owner: usize, layer: usize, version: IpVersion) -> Vec<u64> {
        let first = extra::index(layer, version) * self.layout.cell;
        let mut total = vec![0; self.layout.cell];
        for shard in self.shards(owner) {
            let cell = &shard[first..first + self.layout.cell];
            total.iter_mut().zip(cell).for_each(|(total, word)| *total += word.load(Ordering::Relaxed));
        }
        total
    }

    /// Returns the cells of a slot or group with their attributes.
    fn cells(&self, owner: usize) -> impl Iterator<Item = (Attributes, Vec<u64>)> {
        let layers = self.functions.iter().flat_map(|named| IpVersion::ALL.map(|network| (named, network)));
        layers.map(move |((layer, function), network)| {
            let attributes = Attributes::new().with(attributes::LAYER.key, function.clone());
            let attributes = attributes.with(attributes::NETWORK.key, attributes::network(network));
            (attributes, self.total(owner, *layer, network))
        })
    }

    /// Returns the points of all non-empty cells.
    fn durations(&self, cells: impl Iterator<Item = (Attributes, Vec<u64>)>, start: UnixNanos) -> Metric {
        let histogram = |cell: &[u64]| {
            let histogram = &cell[..self.layout.cell - PACKET_LOSSES];
            ExponentialHistogram::from_slots(self.scale, &histogram[1..], histogram[0])
        };
        let histograms = cells.map(|(attributes, cell)| (attributes, histogram(&cell)));
        let point = |(attributes, histogram)| Point { attributes, start, data: Data::Histogram(histogram) };
        let points = histograms.filter(|(_, histogram)| histogram.count() > 0).map(point).collect();
        Metric { descriptor: self.kind.metric, points }
    }

    fn add_groups_to(&self, readings: &mut Readings) {
        let Some(grouping) = &self.grouping else { return };
        for group in grouping.borrow().live() {
            let cells = self.cells(self.layout.groups + group.index.get());
            let cells = cells.map(|(attributes, cell)| (group.add_attributes(attributes), cell));
            readings.add(group.slot, self.durations(cells, group.start));
        }
    }

    fn add_node_to(&self, readings: &mut Readings) {
        let cells: Vec<_> = self.cells(Slot::NODE.0.into()).collect();
        let losses = cells.iter().flat_map(|(attributes, cell)| self.losses(attributes, cell)).collect();
        readings.add(Slot::NODE, Metric { descriptor: &LOST, points: losses });
        readings.add(Slot::NODE, self.durations(cells.into_iter(), self.start));
    }

    /// Returns the losses of a cell. All losses count for the node.
    fn losses(&self, attributes: &Attributes, cell: &[u64]) -> Vec<Point> {
        let (histogram, counts) = cell.split_at(self.layout.cell - PACKET_LOSSES);
        let above = (ABOVE_RANGE, histogram.last().copied().unwrap_or(0));
        let count = |loss: &PacketLoss| (reason(*loss), counts[*loss as usize]);
        let counts = PacketLoss::ALL.iter().map(count).chain([above]);
        let expected = regular(losses(&self.losses));
        let point = |(reason, count)| lost(self.kind.signal, reason, attributes.clone(), count, self.start);
        counts.filter(|(reason, count)| *count > 0 || expected.contains(reason)).map(point).collect()
    }
}

impl Signal for ExtraLatency {
    fn forget(&mut self, slot: Slot) {
        self.shards(slot.0.into()).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in workloads.slots() {
            readings.add(slot, self.durations(self.cells(slot.0.into()), start));
        }
        self.add_groups_to(readings);
        self.add_node_to(readings);
        Ok(())
    }
}
