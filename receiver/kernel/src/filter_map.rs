//! The map of values that filter packets.

use std::collections::BTreeSet;

use undercurrent_ebpf::abi::filter::{Criterion, FilterKey};
use zerocopy::IntoBytes as _;

use super::{
    client::{Client, ServiceError},
    constant::Constant,
    groups::GroupBy,
    memory::PlannedMap,
    messages::Table,
};

/// The filter map.
pub static CHOICES: PlannedMap = PlannedMap::new("FILTER", ENTRY, |sizing| sizing.filter_keys.most());
/// The value of every entry; programs only check that the key exists.
const VALUE: [u8; size_of::<u32>()] = [0; size_of::<u32>()];
/// Bytes of an entry in the kernel: key, value and hash map overhead.
pub const ENTRY: usize = 64;

/// The criteria by which programs filter packets. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Returns the maximum number of values.
    #[must_use]
    pub const fn most(self) -> usize {
        self.most
    }
}

/// Returns the constants for the criteria and grouping dimensions of packets.
#[must_use]
pub fn constants(keys: FilterKeys, groups: GroupBy) -> [Constant; 2] {
    [Constant::number("packets.by", keys.bits() | groups.bits()), Constant::number("filter.queue", keys.queue())]
}

/// Writes the filter map.
pub struct FilterMap {
    client: Client,
    made: BTreeSet<FilterKey>,
}

impl FilterMap {
    /// Creates a filter without values.
    pub(super) const fn new(client: Client) -> Self {
        Self { client, made: BTreeSet::new() }
    }

    /// Replaces the values by `choices`. Values in both sets stay in the map throughout.
    ///
    /// # Errors
    /// If the kernel refuses to write an entry; the other entries are written.
    pub fn make(&mut self, choices: BTreeSet<FilterKey>) -> Result<(), ServiceError> {
        let mut refused = Ok(());
        for over in self.made.difference(&choices) {
            refused = refused.and(self.client.remove(Table::FilterMap, over.as_bytes()));
        }
        for new in choices.difference(&self.made) {
            refused = refused.and(self.client.insert(Table::FilterMap, new.as_bytes(), &VALUE));
        }
        self.made = choices;
        refused
    }
}
