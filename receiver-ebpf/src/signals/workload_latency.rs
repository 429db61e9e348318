//! Histograms of workloads.
//!
//! One array of words: by slot, then by shard, then by series. A histogram has its sum first, then its buckets at the configured
//! scale. A CPU's shard is its number modulo the number of shards, at most sixteen.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{SERIES, Series},
    workload::Slot,
};

use crate::kernel::{
    cells::{self, MMAPABLE},
    load_time_value, shared,
};

#[map]
static WORKLOAD_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Words of a histogram.
#[unsafe(export_name = "workload.histogram")]
#[unsafe(link_section = ".rodata.scale")]
static HISTOGRAM: u32 = 0;

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
pub fn shard(owner: u32, cpu: u32) -> u32 {
    let mask = load_time_value(&SHARD_MASK);
    owner * (mask + 1) + (cpu & mask)
}

/// Adds a duration to a workload's histogram `weight` times. A bucket must cover the duration.
#[inline(always)]
pub fn record(slot: Slot, series: Series, nanoseconds: u64, weight: u64) {
    record_into(&WORKLOAD_LATENCY, slot.0.into(), SERIES, series, nanoseconds, weight);
}

/// Adds a duration to a histogram of a map with this number of `histograms` per shard, `weight` times.
#[inline(always)]
pub fn record_into(
    map: &'static Array<u64>,
    owner: u32,
    histograms: usize,
    series: Series,
    nanoseconds: u64,
    weight: u64,
) {
    let Ok(offset) = cells::bucket(nanoseconds) else { return };
    // SAFETY: the helper has no arguments.
    let shard = shard(owner, unsafe { bpf_get_smp_processor_id() });
    let sum = (shard * histograms as u32 + series.index() as u32) * load_time_value(&HISTOGRAM);
    add(map, sum, nanoseconds * weight);
    add(map, sum + 1 + (offset / size_of::<u64>()) as u32, weight);
}

#[inline(always)]
fn add(map: &'static Array<u64>, index: u32, amount: u64) {
    let Some(word) = map.get_ptr_mut(index) else { return };
    if load_time_value(&SHARED) != 0 {
        shared::add(word, amount);
    } else {
        // SAFETY: a word of the map, which lives as long as the program. Only this CPU writes it.
        unsafe { *word += amount };
    }
}
