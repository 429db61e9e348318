//! Shards: copies of a workload's words, so that CPUs do not write to shared cache lines.
//!
//! A CPU's shard is its number modulo the number of shards, at most sixteen.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, maps::Array};

use super::{load_time_value, shared};

/// The number of shards, a power of two, minus one.
#[unsafe(export_name = "workload.shard_mask")]
#[unsafe(link_section = ".rodata.scale")]
static SHARD_MASK: u32 = 0;

/// 1 if several CPUs share a shard.
#[unsafe(export_name = "workload.shared")]
#[unsafe(link_section = ".rodata.scale")]
static SHARED: u32 = 0;

/// Returns the index of a CPU's shard among the shards of all owners. An owner is a slot or a group.
#[inline(always)]
pub fn index(owner: u32, cpu: u32) -> u32 {
    let mask = load_time_value(&SHARD_MASK);
    owner * (mask + 1) + (cpu & mask)
}

/// Returns the index of the current CPU's shard.
#[inline(always)]
pub fn here(owner: u32) -> u32 {
    // SAFETY: the helper has no arguments.
    index(owner, unsafe { bpf_get_smp_processor_id() })
}

/// Adds to a word of the current CPU's shard.
#[inline(always)]
pub fn add(map: &'static Array<u64>, word: u32, amount: u64) {
    let Some(word) = map.get_ptr_mut(word) else { return };
    if load_time_value(&SHARED) != 0 {
        shared::add(word, amount);
    } else {
        // SAFETY: a word of the map, which lives as long as the program. Only this CPU writes it.
        unsafe { *word += amount };
    }
}
