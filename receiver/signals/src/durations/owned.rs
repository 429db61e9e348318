//! Histograms of workloads and groups.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use undercurrent_ebpf::abi::{group::GROUPED, latency::SERIES};

use super::DurationKind;
use crate::{
    kernel::{maps::Words, memory::ByWorkload},
    telemetry::{ExponentialHistogram, Scale},
    workloads::Slot,
};

/// The histograms of a signal, by workload slot or by group.
pub struct SlotHistograms {
    words: Words,
    layout: ByWorkload,
    /// Number of series in a shard, other signals included.
    all: usize,
    series: Range<usize>,
    scale: Scale,
    /// Scratch buffer for the sum over all shards of a slot. Each series has a sum, followed by its buckets.
    totals: Vec<u64>,
}

impl SlotHistograms {
    /// Returns the view of the map `WORKLOAD_LATENCY`.
    #[must_use]
    pub fn new(words: Words, layout: ByWorkload, kind: &DurationKind, scale: Scale) -> Self {
        let series = kind.series.clone();
        Self { words, layout, all: SERIES, scale, totals: vec![0; series.len() * layout.histogram], series }
    }

    /// Returns the view of the map `GROUP_LATENCY`, which has groups instead of slots.
    #[must_use]
    pub fn of_groups(words: Words, layout: ByWorkload, kind: &DurationKind, scale: Scale) -> Self {
        Self { all: GROUPED, ..Self::new(words, layout, kind, scale) }
    }

    /// Returns the signal's words of a slot, by shard.
    fn shards(&self, slot: Slot) -> impl Iterator<Item = &[AtomicU64]> {
        let shard = self.all * self.layout.histogram;
        let words = self.layout.shards * shard;
        let first = usize::from(slot.0) * words;
        let own = self.series.start * self.layout.histogram..self.series.end * self.layout.histogram;
        let shards = self.words.slice(first..first + words).chunks_exact(shard);
        shards.map(move |shard| &shard[own.clone()])
    }

    /// Clears all histograms of a slot.
    pub fn clear(&self, slot: Slot) {
        self.shards(slot).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns the histogram of each served series of a slot, with the index of the series.
    pub fn read(
        &mut self,
        slot: Slot,
        served: [bool; SERIES],
    ) -> impl Iterator<Item = (usize, ExponentialHistogram)> + '_ {
        let mut totals = std::mem::take(&mut self.totals);
        totals.fill(0);
        // Reads each word once, in memory order. This loop dominates the cost of a tick on hosts with many CPUs and
        // workloads.
        for shard in self.shards(slot) {
            let series = totals.chunks_exact_mut(self.layout.histogram).zip(shard.chunks_exact(self.layout.histogram));
            for ((totals, words), _) in series.zip(&served[self.series.clone()]).filter(|(_, served)| **served) {
                totals.iter_mut().zip(words).for_each(|(total, word)| *total += word.load(Ordering::Relaxed));
            }
        }
        self.totals = totals;
        let series = self.series.clone().zip(self.totals.chunks_exact(self.layout.histogram));
        let series = series.filter(move |(index, _)| served[*index]);
        series.map(|(index, totals)| (index, ExponentialHistogram::from_slots(self.scale, &totals[1..], totals[0])))
    }
}
