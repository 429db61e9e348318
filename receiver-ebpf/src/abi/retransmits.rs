//! Counts of `undercurrent.tcp.retransmits`: words, by slot and then by [`Network`].

use super::{latency::Network, workload::Slot};

/// Words of a slot.
pub const WORDS: usize = 2;

/// Where the count of a slot and an IP version stands.
#[must_use]
#[inline(always)]
pub const fn index(slot: Slot, network: Network) -> u32 {
    slot.0 as u32 * WORDS as u32 + network as u32
}
