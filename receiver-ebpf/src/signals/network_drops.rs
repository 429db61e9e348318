//! `undercurrent.network.drops`: dropped packets, by reason.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    drops::{COUNTS, index},
    workload::Slot,
};

use super::switch;
use crate::kernel::{cells::MMAPABLE, shared};

switch!("network_drops");

/// Drops of the node, by CPU and reason. Floods without a socket count here, so CPUs must not share cache lines.
#[map]
static DROPS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Drops of workloads, by slot and reason.
#[map]
static WORKLOAD_DROPS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts a dropped packet.
#[inline(always)]
pub fn dropped(reason: u32, slot: impl FnOnce() -> Slot) {
    if !enabled() {
        return;
    }
    let slot = slot();
    let (counts, row) = if slot == Slot::NODE {
        // SAFETY: the helper has no arguments.
        (&DROPS, unsafe { bpf_get_smp_processor_id() })
    } else {
        (&WORKLOAD_DROPS, slot.0.into())
    };
    // Atomic for the node's counts too: an interrupt may drop a packet during this addition.
    if let Some(count) = counts.get_ptr_mut(row * COUNTS as u32 + index(reason)) {
        shared::add(count, 1);
    }
}
