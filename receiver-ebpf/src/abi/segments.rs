//! Counts of `undercurrent.network.receive.segments`: words, by slot, then by shard, then by transport protocol and IP version.

use super::latency::{IpVersion, Transport};

/// Words of a shard.
pub const WORDS: usize = 4;

/// Returns the index of a count in its shard.
#[must_use]
#[inline(always)]
pub const fn index(transport: Transport, version: IpVersion) -> u32 {
    transport as u32 * 2 + version as u32
}
