//! `undercurrent.tcp.retransmits`: segments that TCP sent again.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{latency::IpVersion, retransmits, workload::Slot};

use super::switch;
use crate::kernel::{cells::MMAPABLE, shared};

switch!("tcp_retransmits");

/// Segments by slot and [`IpVersion`]. They are rare, so all CPUs share the counts.
#[map]
static RETRANSMITS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts segments. `slot` runs only if the signal is enabled.
#[inline(always)]
pub fn sent_again(version: IpVersion, segments: u64, slot: impl FnOnce() -> Slot) {
    if enabled()
        && let Some(word) = RETRANSMITS.get_ptr_mut(retransmits::index(slot(), version))
    {
        shared::add(word, segments);
    }
}
