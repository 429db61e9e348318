//! The table from cgroups and namespaces to slots, which eBPF programs read.
//!
//! Each key has two candidate positions, so that a program finds it, or its absence, with two loads: cuckoo hashing
//! (Pagh and Rodler 2004). An entry is one word and is stored atomically. A key that moves is briefly present at both
//! positions.

use std::sync::atomic::{AtomicU64, Ordering};

use undercurrent_ebpf::abi::workload::{KEY_BITS, OWNERS, SLOT_BITS, Slot, entry, indices, slot_of};

use crate::kernel::maps::Words;

/// The maximum number of keys: half of the entries. At this load a free position is almost always found within a few
/// moves.
pub const CAPACITY: usize = OWNERS / 2;
/// The maximum number of keys that are moved to insert one key.
const MOVES: usize = 64;

/// The storage of the table: the kernel's map, or a test's memory.
pub trait Table: Send {
    /// All entries.
    fn entries(&self) -> &[AtomicU64];
}

impl Table for Words {
    fn entries(&self) -> &[AtomicU64] {
        self.slice(0..self.count())
    }
}

/// An empty table for operation without eBPF programs.
impl Table for () {
    fn entries(&self) -> &[AtomicU64] {
        &[]
    }
}

/// Keys and their slots.
pub struct Owners {
    table: Box<dyn Table>,
    keys: usize,
}

/// The reason why a key was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The table is full.
    #[error("the table of {CAPACITY} cgroups and network namespaces is full")]
    Full,
    /// The key has too many bits.
    #[error("a cgroup's id has more than {KEY_BITS} bits")]
    TooLong,
}

impl Owners {
    /// Creates an empty table.
    pub fn new(table: Box<dyn Table>) -> Self {
        Self { table, keys: 0 }
    }

    /// Returns the slot of a key, by the lookup of the eBPF programs.
    #[cfg(test)]
    pub fn slot(&self, key: u64) -> Option<Slot> {
        indices(key).into_iter().find_map(|place| slot_of(self.load(place), key))
    }

    /// Returns the number of keys.
    #[cfg(test)]
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Inserts a key, or changes its slot.
    ///
    /// # Errors
    /// If there is no room; eBPF programs then do not find the key.
    pub fn set(&mut self, key: u64, slot: Slot) -> Result<(), NoRoom> {
        if key == 0 || key >> KEY_BITS != 0 {
            return Err(NoRoom::TooLong);
        }
        if let Some(place) = self.find(key) {
            self.store(place, entry(key, slot));
            return Ok(());
        }
        if self.keys >= self.table.entries().len() / 2 {
            return Err(NoRoom::Full);
        }
        let place = self.make_room(key)?;
        self.store(place, entry(key, slot));
        self.keys += 1;
        Ok(())
    }

    /// Removes a key.
    pub fn remove(&mut self, key: u64) {
        if let Some(place) = self.find(key) {
            self.store(place, 0);
            self.keys -= 1;
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        let there = |place: &u32| key != 0 && slot_of(self.load(*place), key).is_some();
        indices(key).into_iter().find(there)
    }

    /// Returns a free position for a key. If both positions are taken, moves keys along a path to a free position,
    /// starting at its end, so that every key is always present.
    fn make_room(&self, key: u64) -> Result<u32, NoRoom> {
        let [better, other] = indices(key);
        if let Some(free) = [better, other].into_iter().find(|place| self.load(*place) == 0) {
            return Ok(free);
        }
        let mut path = vec![better];
        while path.len() <= MOVES {
            let last = *path.last().unwrap_or(&better);
            let next = self.alternative(last);
            if path.contains(&next) {
                break;
            }
            path.push(next);
            if self.load(next) == 0 {
                for step in path.windows(2).rev() {
                    self.store(step[1], self.load(step[0]));
                }
                return Ok(better);
            }
        }
        Err(NoRoom::Full)
    }

    /// Returns the other position of the key at a position.
    fn alternative(&self, place: u32) -> u32 {
        let [better, other] = indices(self.load(place) >> SLOT_BITS);
        if better == place { other } else { better }
    }

    fn load(&self, place: u32) -> u64 {
        self.table.entries().get(place as usize).map_or(0, |entry| entry.load(Ordering::Relaxed))
    }

    fn store(&self, place: u32, entry: u64) {
        if let Some(word) = self.table.entries().get(place as usize) {
            word.store(entry, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    struct Fake(Vec<AtomicU64>);

    impl Fake {
        fn empty() -> Self {
            Self((0..OWNERS).map(|_| AtomicU64::new(0)).collect())
        }
    }

    impl Table for Fake {
        fn entries(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    fn empty() -> Owners {
        Owners::new(Box::new(Fake::empty()))
    }

    proptest! {
        #[test]
        fn every_key_is_found_with_its_slot_and_no_other(
            changes in prop::collection::vec((1_u64..2000, 0_u16..300, prop::bool::weighted(0.3)), 0..3000),
            spread in prop_oneof![Just(1_u64), Just(4096), Just(OWNERS as u64), Just(1 << 31)],
        ) {
            let (mut owners, mut model) = (empty(), BTreeMap::new());
            for (key, slot, removed) in changes {
                let key = key * spread;
                if removed {
                    owners.remove(key);
                    model.remove(&key);
                } else {
                    owners.set(key, Slot(slot)).map_err(|error| TestCaseError::fail(error.to_string()))?;
                    model.insert(key, Slot(slot));
                }
            }
            prop_assert_eq!(owners.keys, model.len());
            for key in (1..2000).map(|key| key * spread) {
                prop_assert_eq!(owners.slot(key), model.get(&key).copied(), "{}", key);
            }
        }
    }

    #[test]
    fn a_table_half_full_takes_ids_in_sequence_and_refuses_beyond() {
        let mut owners = empty();
        let keys = 1_000_000..1_000_000 + CAPACITY as u64;
        for key in keys.clone() {
            owners.set(key, Slot(7)).expect("room");
        }
        assert_eq!(owners.set(1, Slot(7)), Err(NoRoom::Full));
        assert!(keys.into_iter().all(|key| owners.slot(key) == Some(Slot(7))));
        assert_eq!(owners.set(1 << KEY_BITS, Slot(7)), Err(NoRoom::TooLong));
        assert_eq!(owners.set(0, Slot(7)), Err(NoRoom::TooLong));
    }
}
