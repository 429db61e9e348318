//! Histograms of groups. Their layout is that of workloads, with fewer series.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{group::GROUPED, series::Series};

use super::workload_latency::record_into;
use crate::kernel::{cells::MMAPABLE, group::Number};

#[map]
static GROUP_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Adds a duration to a group's histogram `weight` times. A bucket must cover the duration.
#[inline(always)]
pub fn record(group: Number, series: Series, nanoseconds: u64, weight: u64) {
    record_into(&GROUP_LATENCY, group.get(), GROUPED, series, nanoseconds, weight);
}
