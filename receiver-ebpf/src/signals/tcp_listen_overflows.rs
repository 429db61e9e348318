//! `undercurrent.tcp.listen.overflows`: connection attempts that TCP dropped because the accept queue was full.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::workload::Slot;

use crate::kernel::{cells::MMAPABLE, shared};

/// Attempts by slot. They are rare, so all CPUs share the counts.
#[map]
static LISTEN_OVERFLOWS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts a dropped attempt of the listener in a slot.
#[inline(always)]
pub fn dropped(slot: Slot) {
    if let Some(word) = LISTEN_OVERFLOWS.get_ptr_mut(slot.0.into()) {
        shared::add(word, 1);
    }
}
