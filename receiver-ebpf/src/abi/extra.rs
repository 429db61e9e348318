//! Cells of the layers that a user names.
//!
//! One array of words: by owner (slots, then groups), then by shard (as workloads' histograms have them), then by layer,
//! then by IP version a cell. A cell is a histogram of the configured scale, its sum first and its slots after it, and after these the packets
//! in no histogram by [`super::loss::PacketLoss`], which all count for the node.

use super::{latency::Network, loss::PACKET_LOSSES};

/// Layers that there are programs for.
pub const LAYERS: usize = 8;

/// The arguments that programs get at: those that registers pass on x86-64.
pub const ARGUMENTS: u32 = 6;

/// Words of a cell whose histogram has so many slots.
#[must_use]
pub const fn cell(slots: usize) -> usize {
    1 + slots + PACKET_LOSSES
}

/// Where a cell stands in its shard, in cells.
#[must_use]
#[inline(always)]
pub const fn index(layer: usize, network: Network) -> usize {
    layer * Network::ALL.len() + network as usize
}
