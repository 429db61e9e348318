//! Which packets programs choose.

use std::collections::BTreeSet;

use aya::maps::{HashMap, MapData, MapError};
use undercurrent_ebpf::abi::filter::{Choice, Criterion};
use zerocopy::IntoBytes as _;

/// The map's name.
pub const CHOICES: &str = "CHOICES";
/// Bytes of a choice.
pub const KEY: usize = size_of::<Choice>();
/// Bytes that a choice takes in the kernel: its key, a value, and what a hash map keeps with them.
pub const ENTRY: usize = 64;

/// What programs choose packets by; by nothing at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Criteria {
    bits: u32,
    queue: u32,
    most: usize,
}

impl Criteria {
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

    /// The bits of the criteria that are asked for.
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
pub struct Choices {
    map: HashMap<MapData, [u8; KEY], u32>,
    made: BTreeSet<Choice>,
}

impl Choices {
    /// Takes charge of the map. Nothing is chosen.
    pub(super) const fn new(map: HashMap<MapData, [u8; KEY], u32>) -> Self {
        Self { map, made: BTreeSet::new() }
    }

    /// Makes these choices, and no others. What is chosen goes on being measured meanwhile.
    ///
    /// # Errors
    /// The kernel's refusal to write the map; the other choices are made.
    pub fn make(&mut self, choices: BTreeSet<Choice>) -> Result<(), MapError> {
        let mut refused = Ok(());
        for over in self.made.difference(&choices) {
            refused = refused.and(self.map.remove(&bytes(over)));
        }
        for new in choices.difference(&self.made) {
            refused = refused.and(self.map.insert(bytes(new), 0, 0));
        }
        self.made = choices;
        refused
    }
}

fn bytes(choice: &Choice) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    bytes.copy_from_slice(choice.as_bytes());
    bytes
}
