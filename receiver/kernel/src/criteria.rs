//! Filter criteria and grouping dimensions of packets.

use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::{filter::Criterion, group::Dimension};

use super::constant::Constant;

/// The smallest number of values of a filter.
const ROOM: usize = 64;

/// The filter criteria of packets. The default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterKeys {
    bits: u32,
    queue: u32,
    most: usize,
}

impl FilterKeys {
    /// Adds a criterion with at most `most` values. Zero values add no criterion.
    #[must_use]
    pub const fn with(self, criterion: Criterion, most: usize) -> Self {
        let bits = if most == 0 { self.bits } else { self.bits | criterion.bit() };
        Self { bits, most: self.most + most, ..self }
    }

    /// Adds a minimum number of packets in the receive queue. Zero adds no criterion.
    #[must_use]
    pub const fn with_queue(self, queue: u32) -> Self {
        let bits = if queue == 0 { self.bits } else { self.bits | Criterion::Queue.bit() };
        Self { bits, queue, ..self }
    }

    /// Returns true if any criterion is set.
    #[must_use]
    pub const fn any(self) -> bool {
        self.bits != 0
    }

    /// Returns the bits of the criteria.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the minimum number of packets in the receive queue.
    #[must_use]
    pub const fn queue(self) -> u32 {
        self.queue
    }

    /// Returns the maximum number of values. A filter has room for further values while the sidecar runs.
    #[must_use]
    pub const fn most(self) -> usize {
        if self.most > 0 && self.most < ROOM { ROOM } else { self.most }
    }
}

/// The grouping dimensions of packets. The default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBy {
    bits: u32,
    limit: u16,
}

impl GroupBy {
    /// Groups packets by `dimensions`, in at most `limit` groups.
    #[must_use]
    pub fn new(dimensions: impl Iterator<Item = Dimension>, limit: u16) -> Self {
        let bits = dimensions.map(Dimension::bit).sum();
        Self { bits, limit: if bits == 0 { 0 } else { limit } }
    }

    /// Returns the bits of the dimensions.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the maximum number of groups.
    #[must_use]
    pub const fn limit(self) -> u16 {
        self.limit
    }
}

/// Returns the constants for the criteria and grouping dimensions of packets.
#[must_use]
pub fn constants(keys: FilterKeys, groups: GroupBy) -> [Constant; 2] {
    [Constant::number("packets.by", keys.bits() | groups.bits()), Constant::number("filter.queue", keys.queue())]
}
