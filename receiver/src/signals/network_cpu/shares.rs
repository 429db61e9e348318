//! CPU time of network events by workload.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::cost::{self, NetworkEvent};

use crate::{
    kernel::{Kernel, KernelError, maps::Words, memory::PlannedMap},
    workloads::Slot,
};

/// Nanoseconds by slot, shard and [`NetworkEvent`].
pub static NETWORK_CPU: PlannedMap = PlannedMap::new("NETWORK_CPU", size_of::<u64>(), |sizing| {
    sizing.slots() * sizing.by_workload().shards * cost::WORDS
});

/// The map [`NETWORK_CPU`].
pub struct Shares {
    words: Words,
    shards: usize,
}

impl Shares {
    /// Maps the times into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        Ok(Self { words: kernel.words(&NETWORK_CPU)?, shards: kernel.histograms().shards })
    }

    fn of(&self, slot: Slot) -> &[AtomicU64] {
        let words = self.shards * cost::WORDS;
        let first = usize::from(slot.0) * words;
        self.words.slice(first..first + words)
    }

    /// Returns the CPU time of a workload's event in nanoseconds.
    pub fn time(&self, slot: Slot, event: NetworkEvent) -> u64 {
        self.of(slot).iter().skip(event as usize).step_by(cost::WORDS).map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Returns true if any time is charged to a workload.
    pub fn has_time(&self, slot: Slot) -> bool {
        self.of(slot).iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Clears the times of a slot.
    pub fn clear(&self, slot: Slot) {
        self.of(slot).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
