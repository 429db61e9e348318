//! Histograms of workloads and groups.

use std::{
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use undercurrent_ebpf::abi::{group::GROUPED, series::SERIES};

use super::DurationKind;
use crate::{
    kernel::{groups::GroupIndex, maps::Words, memory::ByWorkload},
    telemetry::{ExponentialHistogram, Scale},
    workloads::Slot,
};

/// An index of owners of histograms in one map.
pub trait OwnerIndex: Copy {
    /// Number of series in a shard, of all signals.
    const SERIES: usize;

    /// Returns the index.
    fn get(self) -> usize;
}

impl OwnerIndex for Slot {
    const SERIES: usize = SERIES;

    fn get(self) -> usize {
        self.0.into()
    }
}

impl OwnerIndex for GroupIndex {
    const SERIES: usize = GROUPED;

    fn get(self) -> usize {
        Self::get(self)
    }
}

/// The histograms of a signal by workload slot, in the map `WORKLOAD_LATENCY`.
pub type SlotHistograms = OwnedHistograms<Slot>;
/// The histograms of a signal by group, in the map `GROUP_LATENCY`.
pub type GroupHistograms = OwnedHistograms<GroupIndex>;

/// The histograms of a signal, by the index of their owner.
pub struct OwnedHistograms<I> {
    words: Words,
    layout: ByWorkload,
    series: Range<usize>,
    scale: Scale,
    /// Scratch buffer for the sum over all shards of an owner. Each series has a sum, followed by its buckets.
    totals: Vec<u64>,
    owner: PhantomData<I>,
}

impl<I: OwnerIndex> OwnedHistograms<I> {
    /// Returns the view of a map with this layout.
    #[must_use]
    pub fn new(words: Words, layout: ByWorkload, kind: &DurationKind, scale: Scale) -> Self {
        let series = kind.series.clone();
        let totals = vec![0; series.len() * layout.histogram];
        Self { words, layout, series, scale, totals, owner: PhantomData }
    }

    /// Returns the signal's words of an owner, by shard.
    fn shards(&self, owner: I) -> impl Iterator<Item = &[AtomicU64]> {
        let shard = I::SERIES * self.layout.histogram;
        let words = self.layout.shards * shard;
        let first = owner.get() * words;
        let own = self.series.start * self.layout.histogram..self.series.end * self.layout.histogram;
        let shards = self.words.slice(first..first + words).chunks_exact(shard);
        shards.map(move |shard| &shard[own.clone()])
    }

    /// Clears all histograms of an owner.
    pub fn clear(&self, owner: I) {
        self.shards(owner).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns the histogram of each served series of an owner, with the index of the series.
    pub fn read(
        &mut self,
        owner: I,
        served: [bool; SERIES],
    ) -> impl Iterator<Item = (usize, ExponentialHistogram)> + '_ {
        let mut totals = std::mem::take(&mut self.totals);
        totals.fill(0);
        // Reads each word once, in memory order. This loop dominates the cost of a tick on hosts with many CPUs and
        // workloads.
        for shard in self.shards(owner) {
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
