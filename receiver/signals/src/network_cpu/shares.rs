//! CPU time of network events by workload.

use undercurrent_ebpf::abi::cost::{self, CostKind, RunningCall, waiting_calls};

use crate::{
    kernel::{Kernel, KernelError, memory::PlannedMap},
    slot_words::{SlotWords, entries},
    workloads::Slot,
};

/// Nanoseconds by slot, shard and [`CostKind`].
pub static NETWORK_CPU: PlannedMap = PlannedMap::new("NETWORK_CPU", size_of::<[u64; cost::WORDS]>(), entries);
/// The socket call on each CPU.
pub static CALLS: PlannedMap = PlannedMap::new("CALLS", size_of::<RunningCall>(), |sizing| sizing.cpus);
/// The socket calls of tasks that do not run.
pub static WAITING_CALLS: PlannedMap =
    PlannedMap::new("WAITING_CALLS", size_of::<[u64; waiting_calls::TASKS]>(), |sizing| {
        if sizing.socket_calls { waiting_calls::ENTRIES } else { 0 }
    });

/// The map [`NETWORK_CPU`].
pub struct Shares(SlotWords);

impl Shares {
    /// Maps the times into memory.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        SlotWords::open(kernel, &NETWORK_CPU, cost::WORDS).map(Self)
    }

    /// Returns the CPU time of a workload in nanoseconds.
    pub fn time(&self, slot: Slot, kind: CostKind) -> u64 {
        self.0.sum(slot, kind as usize)
    }

    /// Clears the times of a slot.
    pub fn clear(&self, slot: Slot) {
        self.0.clear(slot);
    }
}
