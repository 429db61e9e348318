//! Which packets programs choose.

use std::collections::BTreeSet;

use undercurrent_ebpf::abi::filter::{Criterion, FilterKey};
use zerocopy::IntoBytes as _;

use super::{
    client::{Client, ServiceError},
    memory::PlannedMap,
    service::Table,
};

/// The map of choices.
pub static CHOICES: PlannedMap = PlannedMap::new("FILTER", ENTRY, |sizing| sizing.filter_keys.most());
/// The value of every choice: programs only look whether there is one.
const VALUE: [u8; size_of::<u32>()] = [0; size_of::<u32>()];
/// Bytes that a choice takes in the kernel: its key, a value, and what a hash map keeps with them.
pub const ENTRY: usize = 64;

/// What programs choose packets by; by nothing at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterKeys {
    bits: u32,
    queue: u32,
    most: usize,
}

impl FilterKeys {
    /// Asks for a criterion, of which as many values will be chosen at most. Of none nothing is asked.
    #[must_use]
    pub const fn with(self, criterion: Criterion, most: usize) -> Self {
        let bits = if most == 0 { self.bits } else { self.bits | criterion.bit() };
        Self { bits, most: self.most + most, ..self }
    }

    /// Asks for so many packets in a receive queue.
    #[must_use]
    pub const fn with_queue(self, queue: u32) -> Self {
        let bits = if queue == 0 { self.bits } else { self.bits | Criterion::Queue.bit() };
        Self { bits, queue, ..self }
    }

    /// Whether anything is asked for.
    #[must_use]
    pub const fn any(self) -> bool {
        self.bits != 0
    }

    /// The bits of the filter_keys that are asked for.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Packets that a receive queue has at least.
    #[must_use]
    pub const fn queue(self) -> u32 {
        self.queue
    }

    /// Values that are chosen at most.
    #[must_use]
    pub const fn most(self) -> usize {
        self.most
    }
}

/// Tells programs what chooses packets.
pub struct FilterMap {
    client: Client,
    made: BTreeSet<FilterKey>,
}

impl FilterMap {
    /// Nothing is chosen yet.
    pub(super) const fn new(client: Client) -> Self {
        Self { client, made: BTreeSet::new() }
    }

    /// Makes these choices, and no others. What is chosen goes on being measured meanwhile.
    ///
    /// # Errors
    /// The kernel's refusal to write the map; the other choices are made.
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
