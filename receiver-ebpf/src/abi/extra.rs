//! Cells of the layers that a user names.
//!
//! One array of words: by owner (slots, then groups), then by shard (like histograms of workloads), then by layer, then by IP
//! version. A cell has a histogram of the configured scale, with its sum first, and then the losses by
//! [`super::loss::PacketLoss`]. All losses count for the node.

use super::{latency::IpVersion, loss::PACKET_LOSSES};

/// Number of layers with programs.
pub const LAYERS: usize = 8;

/// Number of arguments that programs can read: x86-64 passes six in registers.
pub const ARGUMENTS: u32 = 6;

/// Returns the words of a cell with this number of buckets.
#[must_use]
pub const fn cell(buckets: usize) -> usize {
    1 + buckets + PACKET_LOSSES
}

/// Returns the index of a cell in its shard.
#[must_use]
#[inline(always)]
pub const fn index(layer: usize, version: IpVersion) -> usize {
    layer * IpVersion::ALL.len() + version as usize
}
