//! The histograms that belong to groups, laid out as workloads' are, of the series that groups have.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{group::GROUPED, latency::Series};

use super::workload_latency::{self, HISTOGRAM};
use crate::kernel::{
    cells::{self, MMAPABLE},
    group::Number,
    set_outside,
};

#[map]
static GROUP_LATENCY: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Adds a duration, which some bucket covers, to a group's histogram, as often as its weight says.
#[inline(always)]
pub fn record(group: Number, series: Series, nanoseconds: u64, weight: u64) {
    let Ok(offset) = cells::slot(nanoseconds) else { return };
    // SAFETY: a helper without arguments.
    let shard = workload_latency::shard(group.0, unsafe { bpf_get_smp_processor_id() });
    let sum = (shard * GROUPED as u32 + series.index() as u32) * set_outside(&HISTOGRAM);
    workload_latency::add(&GROUP_LATENCY, sum, nanoseconds * weight);
    workload_latency::add(&GROUP_LATENCY, sum + 1 + (offset / size_of::<u64>()) as u32, weight);
}
