//! Counts of `undercurrent.network.receive.segments` and `undercurrent.network.receive.io`: words, by slot, then by shard, then by
//! [`Count`], transport protocol and IP version.

use super::latency::{IpVersion, Transport};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Segments on the wire.
    Segments,
    /// Bytes after the IP header.
    Bytes,
}

/// Words of a shard: one cache line, which CPUs with their own shard do not share.
pub const WORDS: usize = 8;

/// Returns the index of a count in its shard.
#[must_use]
#[inline(always)]
pub const fn index(count: Count, transport: Transport, version: IpVersion) -> usize {
    count as usize * 4 + transport as usize * 2 + version as usize
}
