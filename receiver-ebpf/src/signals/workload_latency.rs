//! The histograms that belong to workloads.
//!
//! One array of words: by slot, then by shard, then by series a histogram of the configured scale, its sum first and its
//! slots after it. A shard has the CPUs whose numbers end alike; there are as many as CPUs, and at most sixteen.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{SERIES, Series},
    workload::Slot,
};

use crate::kernel::{
    cells::{self, MMAPABLE},
    set_outside, shared,
};

#[map]
static WORKLOAD_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Words of one histogram.
#[unsafe(export_name = "workload.histogram")]
#[unsafe(link_section = ".rodata.scale")]
static HISTOGRAM: u32 = 0;

/// Shards less one; they are a power of two.
#[unsafe(export_name = "workload.shard_mask")]
#[unsafe(link_section = ".rodata.scale")]
static SHARD_MASK: u32 = 0;

/// Whether several CPUs share a shard.
#[unsafe(export_name = "workload.shared")]
#[unsafe(link_section = ".rodata.scale")]
static SHARED: u32 = 0;

/// The number of a CPU's shard of a slot, or of a group, among all shards.
#[inline(always)]
pub fn shard(owner: u32, cpu: u32) -> u32 {
    let mask = set_outside(&SHARD_MASK);
    owner * (mask + 1) + (cpu & mask)
}

/// Adds a duration, which some bucket covers, to a workload's histogram, as often as its weight says.
#[inline(always)]
pub fn record(slot: Slot, series: Series, nanoseconds: u64, weight: u64) {
    record_into(&WORKLOAD_LATENCY, slot.0.into(), SERIES, series, nanoseconds, weight);
}

/// The same of a map whose owners, slots or groups, have histograms of the first so many series.
#[inline(always)]
pub fn record_into(
    map: &'static Array<u64>,
    owner: u32,
    histograms: usize,
    series: Series,
    nanoseconds: u64,
    weight: u64,
) {
    let Ok(offset) = cells::slot(nanoseconds) else { return };
    // SAFETY: a helper without arguments.
    let shard = shard(owner, unsafe { bpf_get_smp_processor_id() });
    let sum = (shard * histograms as u32 + series.index() as u32) * set_outside(&HISTOGRAM);
    add(map, sum, nanoseconds * weight);
    add(map, sum + 1 + (offset / size_of::<u64>()) as u32, weight);
}

#[inline(always)]
fn add(map: &'static Array<u64>, index: u32, amount: u64) {
    let Some(word) = map.get_ptr_mut(index) else { return };
    if set_outside(&SHARED) != 0 {
        shared::add(word, amount);
    } else {
        // SAFETY: a word of the map, which lives as long as the program, and this CPU alone writes it.
        unsafe { *word += amount };
    }
}
