//! `undercurrent.tcp.retransmits`: segments that were sent again.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{latency::Network, retransmits, workload::Slot};

use super::switch;
use crate::kernel::{cells::MMAPABLE, shared};

switch!("tcp_retransmits");

/// Segments by slot and [`Network`]. They are rare, so that all CPUs share them.
#[map]
static RETRANSMITS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// A packet was sent again. Whose it is, is asked only where somebody wants to know.
#[inline(always)]
pub fn sent_again(network: Network, segments: u64, slot: impl FnOnce() -> Slot) {
    if enabled()
        && let Some(word) = RETRANSMITS.get_ptr_mut(retransmits::index(slot(), network))
    {
        shared::add(word, segments);
    }
}
