//! The layers of `latency` that the user names: functions of the kernel that take a packet.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::{
    extra,
    latency::Network,
    loss::{PACKET_LOSSES, PacketLoss},
};

use super::{
    Opening, ReadError, Signal, attributes,
    itself::{LOST, lost},
    timings::{Kind, reason},
};
use crate::{
    kernel::{KernelError, maps::Words, memory::ByFunction},
    telemetry::{Attributes, Data, ExponentialHistogram, Metric, Point, Readings, Scale, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The functions that are layers.
pub struct ExtraLatency {
    kind: &'static Kind,
    words: Words,
    layout: ByFunction,
    scale: Scale,
    start: UnixNanos,
    /// Those that programs are attached to, each with its layer's number.
    functions: Vec<(usize, String)>,
}

impl ExtraLatency {
    /// Opens the map; `None` where no program is attached to any function.
    ///
    /// # Errors
    /// Where it cannot be mapped.
    pub fn open(opening: &Opening<'_>, kind: &'static Kind) -> Result<Option<Self>, KernelError> {
        let functions: Vec<_> =
            opening.kernel.functions().map(|(layer, function)| (layer, function.to_owned())).collect();
        if functions.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            kind,
            words: opening.kernel.words("EXTRA_LATENCY")?,
            layout: opening.kernel.by_function(),
            scale: opening.settings.latency.scale,
            start: opening.start,
            functions,
        }))
    }

    /// The words of a slot, by shard.
    fn shards(&self, slot: Slot) -> impl Iterator<Item = &[AtomicU64]> {
        let words = self.layout.shards * self.layout.shard;
        let first = usize::from(slot.0) * words;
        self.words.slice(first..first + words).chunks_exact(self.layout.shard)
    }

    /// What all shards recorded for a slot of a layer.
    fn total(&self, slot: Slot, layer: usize, network: Network) -> Vec<u64> {
        let first = extra::index(layer, network) * self.layout.cell;
        let mut total = vec![0; self.layout.cell];
        for shard in self.shards(slot) {
            let cell = &shard[first..first + self.layout.cell];
            total.iter_mut().zip(cell).for_each(|(total, word)| *total += word.load(Ordering::Relaxed));
        }
        total
    }

    fn add_to(&self, readings: &mut Readings, slot: Slot, start: UnixNanos) {
        let (mut durations, mut losses) = (Vec::new(), Vec::new());
        for (layer, function) in &self.functions {
            for network in Network::ALL {
                let attributes = Attributes::new().with(attributes::LAYER.key, function.clone());
                let attributes = attributes.with(attributes::NETWORK.key, attributes::network(network));
                let total = self.total(slot, *layer, network);
                let (histogram, lost) = total.split_at(self.layout.cell - PACKET_LOSSES);
                if slot == Slot::NODE {
                    losses.extend(self.losses(&attributes, histogram, lost));
                }
                let histogram = ExponentialHistogram::from_slots(self.scale, &histogram[1..], histogram[0]);
                if histogram.count() > 0 {
                    durations.push(Point { attributes, start, data: Data::Histogram(histogram) });
                }
            }
        }
        readings.add(slot, Metric { descriptor: self.kind.metric, points: durations });
        readings.add(slot, Metric { descriptor: &LOST, points: losses });
    }

    fn losses(&self, attributes: &Attributes, histogram: &[u64], counts: &[u64]) -> impl Iterator<Item = Point> {
        let above = ("above_range", histogram.last().copied().unwrap_or(0));
        let count = |loss: &PacketLoss| (reason(*loss), counts[*loss as usize]);
        // Of no interest where nothing is filtered.
        let told = |loss: &&PacketLoss| **loss != PacketLoss::Unfiltered || counts[**loss as usize] > 0;
        let counts: Vec<_> = self.kind.losses.iter().filter(told).map(count).chain([above]).collect();
        counts.into_iter().map(|(reason, count)| lost(self.kind.signal, reason, attributes.clone(), count, self.start))
    }
}

impl Signal for ExtraLatency {
    fn forget(&mut self, slot: Slot) {
        self.shards(slot).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        for (slot, start) in workloads.slots() {
            self.add_to(readings, slot, start);
        }
        self.add_to(readings, Slot::NODE, self.start);
        Ok(())
    }
}
