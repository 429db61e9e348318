//! CPU time of network events by workload.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::cost::{self, CostKind, RunningCall, waiting_calls};

use crate::{
    kernel::{Kernel, KernelError, maps::Words, memory::PlannedMap},
    workloads::Slot,
};

/// Nanoseconds by slot, shard and [`CostKind`]. The node has a slot even if nothing is grouped by workload.
pub static NETWORK_CPU: PlannedMap = PlannedMap::new("NETWORK_CPU", size_of::<u64>(), |sizing| {
    sizing.slots().max(1) * sizing.by_workload().shards * cost::WORDS
});
/// The socket call on each CPU.
pub static CALLS: PlannedMap = PlannedMap::new("CALLS", size_of::<RunningCall>(), |sizing| sizing.cpus);
/// The socket calls of tasks that do not run.
pub static WAITING_CALLS: PlannedMap = PlannedMap::new("WAITING_CALLS", size_of::<u64>(), |_| waiting_calls::ENTRIES);

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

    /// Returns the CPU time of a workload in nanoseconds.
    pub fn time(&self, slot: Slot, kind: CostKind) -> u64 {
        self.of(slot).iter().skip(kind as usize).step_by(cost::WORDS).map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Clears the times of a slot.
    pub fn clear(&self, slot: Slot) {
        self.of(slot).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
