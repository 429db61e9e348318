//! The histograms that belong to workloads, or to groups.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use undercurrent_ebpf::abi::{group::GROUPED, latency::SERIES};

use super::Kind;
use crate::{
    kernel::{maps::Words, memory::ByWorkload},
    telemetry::{ExponentialHistogram, Scale},
    workloads::Slot,
};

/// What programs keep of a signal by workload, or by group.
pub struct Owned {
    words: Words,
    layout: ByWorkload,
    /// Series that a shard has, the signal's and others'.
    all: usize,
    series: Range<usize>,
    scale: Scale,
    /// What all shards recorded of one slot, by series: a sum, and its slots after it. Kept for the next.
    totals: Vec<u64>,
}

impl Owned {
    /// The map `WORKLOAD_LATENCY`, laid out for a scale.
    #[must_use]
    pub fn new(words: Words, layout: ByWorkload, kind: &Kind, scale: Scale) -> Self {
        let series = kind.series.clone();
        Self { words, layout, all: SERIES, scale, totals: vec![0; series.len() * layout.histogram], series }
    }

    /// The map `GROUP_LATENCY`, in which groups have the place of slots.
    #[must_use]
    pub fn of_groups(words: Words, layout: ByWorkload, kind: &Kind, scale: Scale) -> Self {
        Self { all: GROUPED, ..Self::new(words, layout, kind, scale) }
    }

    /// The signal's words of a slot, by shard.
    fn shards(&self, slot: Slot) -> impl Iterator<Item = &[AtomicU64]> {
        let shard = self.all * self.layout.histogram;
        let words = self.layout.shards * shard;
        let first = usize::from(slot.0) * words;
        let own = self.series.start * self.layout.histogram..self.series.end * self.layout.histogram;
        let shards = self.words.slice(first..first + words).chunks_exact(shard);
        shards.map(move |shard| &shard[own.clone()])
    }

    /// Sets everything of a slot to zero.
    pub fn clear(&self, slot: Slot) {
        self.shards(slot).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The histogram of each served series of a slot, by the series' index.
    pub fn read(
        &mut self,
        slot: Slot,
        served: [bool; SERIES],
    ) -> impl Iterator<Item = (usize, ExponentialHistogram)> + '_ {
        let mut totals = std::mem::take(&mut self.totals);
        totals.fill(0);
        // In the order of the words, each once: this is most of a tick where CPUs and workloads are many.
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
