//! Counters of workloads: words by slot, then by shard.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    kernel::{
        Kernel, KernelError,
        maps::Words,
        memory::{PlannedMap, Sizing},
    },
    workloads::Slot,
};

/// The entries of a map with words of each slot, the node included, and without shards.
pub fn unsharded<const WORDS: usize>(sizing: &Sizing) -> usize {
    sizing.slots().max(1) * WORDS
}

/// A map of words by slot, shard and index.
pub struct SlotWords {
    words: Words,
    shards: usize,
    /// Words of a shard.
    each: usize,
}

/// Returns the entries of a map with one entry by slot and shard. The node has a slot even if nothing is grouped by workload.
#[must_use]
pub fn entries(sizing: &Sizing) -> usize {
    sizing.slots().max(1) * sizing.by_workload().shards
}

impl SlotWords {
    /// Maps the words into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn open(kernel: &Kernel, map: &'static PlannedMap, each: usize) -> Result<Self, KernelError> {
        Ok(Self { words: kernel.words(map)?, shards: kernel.histograms().shards, each })
    }

    /// Maps the words of a map without shards into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn unsharded(kernel: &Kernel, map: &'static PlannedMap, each: usize) -> Result<Self, KernelError> {
        Ok(Self { words: kernel.words(map)?, shards: 1, each })
    }

    /// Maps the words of the node into memory, which has a shard for each CPU and no other slot.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn by_cpu(kernel: &Kernel, map: &'static PlannedMap, each: usize) -> Result<Self, KernelError> {
        let words = kernel.words(map)?;
        Ok(Self { shards: words.count() / each, words, each })
    }

    fn of(&self, slot: Slot) -> &[AtomicU64] {
        let length = self.shards * self.each;
        let first = usize::from(slot.0) * length;
        self.words.slice(first..first + length)
    }

    /// Returns the sum of a word over all shards.
    pub fn sum(&self, slot: Slot, index: usize) -> u64 {
        self.of(slot).iter().skip(index).step_by(self.each).map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sums of all words over all shards, by index.
    pub fn sums(&self, slot: Slot) -> Vec<u64> {
        let mut sums = vec![0; self.each];
        for shard in self.of(slot).chunks_exact(self.each) {
            sums.iter_mut().zip(shard).for_each(|(sum, word)| *sum += word.load(Ordering::Relaxed));
        }
        sums
    }

    /// Sets a word of a map without shards.
    pub fn set(&self, slot: Slot, index: usize, value: u64) {
        self.of(slot)[index].store(value, Ordering::Relaxed);
    }

    /// Clears the words of a slot.
    pub fn clear(&self, slot: Slot) {
        self.of(slot).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
