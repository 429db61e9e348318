//! The map of values that filter packets.

use std::collections::BTreeSet;

use undercurrent_ebpf::abi::filter::FilterKey;
use zerocopy::IntoBytes as _;

use super::{
    client::{Client, ServiceError},
    memory::{HASH_ENTRY, PlannedMap},
    messages::Table,
};

/// The filter map.
pub static CHOICES: PlannedMap =
    PlannedMap::new(Table::FilterMap.map(), HASH_ENTRY, |sizing| sizing.filter_keys.most());
/// The value of every entry; programs only check that the key exists.
const VALUE: [u8; size_of::<u32>()] = [0; size_of::<u32>()];

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
