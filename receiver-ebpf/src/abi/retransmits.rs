//! Counts of `undercurrent.tcp.retransmits`: words, by slot and then by [`IpVersion`].

use super::{latency::IpVersion, workload::Slot};

/// Words of a slot.
pub const WORDS: usize = 2;

/// Returns the index of the count of a slot and an IP version.
#[must_use]
#[inline(always)]
pub const fn index(slot: Slot, version: IpVersion) -> u32 {
    slot.0 as u32 * WORDS as u32 + version as u32
}
