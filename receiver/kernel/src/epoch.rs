//! The epoch of the programs' cached socket attributions.

use std::sync::atomic::Ordering;

use undercurrent_ebpf::abi::workload::cached;

use super::{
    client::{Client, ServiceError},
    maps::Words,
    messages::Variable,
};

/// Invalidates the cached attributions of sockets, after each change of the workload table and periodically. The
/// periodic epochs bound a race: a program that looks up a workload during a change may cache the old entry.
pub struct Epoch {
    client: Client,
    cache: Words,
    epoch: u64,
}

impl Epoch {
    /// Starts the first epoch of the entries in `cache`.
    pub(super) const fn new(client: Client, cache: Words) -> Self {
        Self { client, cache, epoch: 1 }
    }

    /// Starts the next epoch.
    ///
    /// # Errors
    /// If the kernel refuses to write the map.
    pub fn advance(&mut self) -> Result<(), ServiceError> {
        self.epoch += 1;
        if self.epoch >> cached::EPOCH != 0 {
            // The counter wrapped: clear old entries before their epochs recur. Zero marks an entry without an epoch.
            self.epoch = 1;
            let entries = self.cache.slice(0..self.cache.count());
            entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        }
        self.client.set(Variable::Epoch, self.epoch)
    }
}
