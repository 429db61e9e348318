//! The histograms that belong to workloads.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::latency::PATHS;

use crate::{
    kernel::{maps::Words, memory::ByWorkload},
    telemetry::{ExponentialHistogram, Scale},
    workloads::Slot,
};

/// What programs keep by workload.
pub struct Owned {
    words: Words,
    layout: ByWorkload,
    scale: Scale,
    /// What all shards recorded of one slot, by path: a sum, and its slots after it. Kept for the next.
    totals: Vec<u64>,
}

impl Owned {
    /// The map `WORKLOAD_LATENCY`, laid out for a scale.
    #[must_use]
    pub fn new(words: Words, layout: ByWorkload, scale: Scale) -> Self {
        Self { words, layout, scale, totals: vec![0; PATHS * layout.histogram] }
    }

    fn slot(&self, slot: Slot) -> &[AtomicU64] {
        let first = usize::from(slot.0) * self.layout.slot();
        self.words.slice(first..first + self.layout.slot())
    }

    /// Sets everything of a slot to zero.
    pub fn clear(&self, slot: Slot) {
        self.slot(slot).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The histogram of each served path of a slot, by the path's index.
    pub fn read(
        &mut self,
        slot: Slot,
        served: [bool; PATHS],
    ) -> impl Iterator<Item = (usize, ExponentialHistogram)> + '_ {
        let mut totals = std::mem::take(&mut self.totals);
        totals.fill(0);
        // In the order of the words, each once: this is most of a tick where CPUs and workloads are many.
        for shard in self.slot(slot).chunks_exact(totals.len()) {
            let paths = totals.chunks_exact_mut(self.layout.histogram).zip(shard.chunks_exact(self.layout.histogram));
            for ((totals, words), _) in paths.zip(served).filter(|(_, served)| *served) {
                totals.iter_mut().zip(words).for_each(|(total, word)| *total += word.load(Ordering::Relaxed));
            }
        }
        self.totals = totals;
        let paths = self.totals.chunks_exact(self.layout.histogram).enumerate().filter(move |(path, _)| served[*path]);
        paths.map(|(path, totals)| (path, ExponentialHistogram::from_slots(self.scale, &totals[1..], totals[0])))
    }
}
