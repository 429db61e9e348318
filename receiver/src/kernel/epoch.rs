//! The epoch of what programs have cached of sockets' owners.

use std::sync::atomic::Ordering;

use undercurrent_ebpf::abi::workload::cached;

use super::{
    client::{Client, ServiceError},
    maps::Words,
    service::Variable,
};

/// Ends what programs have cached, each time that the table of owners has changed, and now and then besides: a program
/// that looks something up while it changes may keep what was true before, for one epoch.
pub struct Epoch {
    client: Client,
    cache: Words,
    epoch: u64,
}

impl Epoch {
    /// The first epoch of the entries in `cache`.
    pub(super) const fn new(client: Client, cache: Words) -> Self {
        Self { client, cache, epoch: 1 }
    }

    /// Begins the next epoch.
    ///
    /// # Errors
    /// The kernel's refusal to write the map.
    pub fn advance(&mut self) -> Result<(), ServiceError> {
        self.epoch += 1;
        if self.epoch >> cached::EPOCH != 0 {
            // Entries of the first epochs must not be there when these come again. Zero is no epoch's.
            self.epoch = 1;
            let entries = self.cache.slice(0..self.cache.count());
            entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        }
        self.client.set(Variable::Epoch, self.epoch)
    }
}
