//! Histograms of workloads.
//!
//! One array of words: by slot, then by shard, then by series. A histogram has its sum first, then its buckets at the configured
//! scale.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    series::{SERIES, Series},
    workload::Slot,
};

use crate::kernel::{
    cells::{self, MMAPABLE},
    constant::constants,
    shard,
};

#[map]
static WORKLOAD_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

constants! {
    /// Words of a histogram.
    HISTOGRAM = "workload.histogram";
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
    let first = (shard::here(owner) * histograms as u32 + series.index() as u32) * HISTOGRAM.get();
    let _ = cells::record_words(nanoseconds, weight, |offset, amount| {
        shard::add(map, first + (offset / size_of::<u64>()) as u32, amount);
    });
}
