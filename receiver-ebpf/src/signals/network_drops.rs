//! `undercurrent.network.drops`: packets that were dropped, by reason.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    drops::{COUNTS, place},
    workload::Slot,
};

use super::switch;
use crate::kernel::{cells::MMAPABLE, shared};

switch!("network_drops");

/// What is the node's, by CPU and reason: floods that no socket waits for, so that CPUs do not share it.
#[map]
static DROPS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// What is a workload's, by slot and reason, of all CPUs.
#[map]
static WORKLOAD_DROPS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// A packet was dropped.
#[inline(always)]
pub fn dropped(reason: u32, slot: impl FnOnce() -> Slot) {
    if !enabled() {
        return;
    }
    let slot = slot();
    let (counts, row) = if slot == Slot::NODE {
        // SAFETY: a helper without arguments.
        (&DROPS, unsafe { bpf_get_smp_processor_id() })
    } else {
        (&WORKLOAD_DROPS, slot.0.into())
    };
    // An interrupt may drop packets while this runs, so that not even a CPU's own counts are written by one at a time.
    if let Some(count) = counts.get_ptr_mut(row * COUNTS as u32 + place(reason)) {
        shared::add(count, 1);
    }
}
