//! Shards: copies of a workload's words, so that CPUs do not write to shared cache lines.
//!
//! A CPU's shard is its number modulo the number of shards, at most sixteen.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, maps::Array};
use undercurrent_ebpf::abi::workload::Slot;

use super::{constant::constants, shared};

constants! {
    /// The number of shards, a power of two, minus one.
    SHARD_MASK = "workload.shard_mask";
    /// 1 if several CPUs share a shard.
    SHARED = "workload.shared";
}

/// Returns the index of a CPU's shard among the shards of all owners. An owner is a slot or a group.
#[inline(always)]
pub fn index(owner: u32, cpu: u32) -> u32 {
    let mask = SHARD_MASK.get();
    owner * (mask + 1) + (cpu & mask)
}

/// Returns the index of the current CPU's shard.
#[inline(always)]
pub fn here(owner: u32) -> u32 {
    // SAFETY: the helper has no arguments.
    index(owner, unsafe { bpf_get_smp_processor_id() })
}

/// A map of counters: `N` words by slot, then by shard.
pub type Counters<const N: usize> = Array<[u64; N]>;

/// The counters of a slot in the current CPU's shard.
pub struct SlotCounters<const N: usize>(*mut [u64; N]);

impl<const N: usize> SlotCounters<N> {
    /// Returns the counters of a slot.
    #[inline(always)]
    pub fn of(map: &'static Counters<N>, slot: Slot) -> Option<Self> {
        map.get_ptr_mut(here(slot.0.into())).map(Self)
    }

    /// Adds to the word with an index below `N`.
    #[inline(always)]
    pub fn add(&self, index: usize, amount: u64) {
        // SAFETY: a word of an entry of the map, which lives as long as the program.
        add_to(unsafe { self.0.cast::<u64>().add(index) }, amount);
    }
}

/// Adds to a word of the current CPU's shard.
#[inline(always)]
pub fn add(map: &'static Array<u64>, word: u32, amount: u64) {
    if let Some(word) = map.get_ptr_mut(word) {
        add_to(word, amount);
    }
}

/// Adds to a word of a map that only the CPUs of a shard write.
#[inline(always)]
fn add_to(word: *mut u64, amount: u64) {
    if SHARED.get() != 0 {
        shared::add(word, amount);
    } else {
        // SAFETY: a word of the map, which lives as long as the program. Only this CPU writes it.
        unsafe { *word += amount };
    }
}
