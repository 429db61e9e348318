//! The epoch of what programs have cached of sockets' owners.

use std::sync::atomic::Ordering;

use aya::maps::{Array, MapData, MapError};
use undercurrent_ebpf::abi::workload::cached;

use super::maps::Words;

/// Ends what programs have cached, each time that the table of owners has changed, and now and then besides: a program
/// that looks something up while it changes may keep what was true before, for one epoch.
pub struct Epoch {
    map: Array<MapData, u64>,
    cache: Words,
    epoch: u64,
}

impl Epoch {
    /// Takes charge of the map that holds the epoch. `cache` has the entries.
    pub(super) const fn new(map: Array<MapData, u64>, cache: Words) -> Self {
        Self { map, cache, epoch: 1 }
    }

    /// Begins the next epoch.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn advance(&mut self) -> Result<(), MapError> {
        self.epoch += 1;
        if self.epoch >> cached::EPOCH != 0 {
            // Entries of the first epochs must not be there when these come again. Zero is no epoch's.
            self.epoch = 1;
            let entries = self.cache.slice(0..self.cache.count());
            entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        }
        self.map.set(0, self.epoch, 0)
    }
}
