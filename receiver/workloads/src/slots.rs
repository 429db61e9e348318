//! Allocation of slots to workloads.

use std::collections::VecDeque;

use super::Slot;

/// A first-come, first-served pool of slots. Returned slots rest until they are cleared.
#[derive(Debug)]
pub struct Slots {
    free: VecDeque<Slot>,
    resting: Vec<Slot>,
}

impl Slots {
    /// Creates a pool of `limit` slots.
    pub fn new(limit: u16) -> Self {
        let free = (0..limit).map(|n| Slot(Slot::FIRST.0 + n)).collect();
        Self { free, resting: Vec::new() }
    }

    /// Returns the slot that has been free for longest; `None` if no slot is free.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop_front()
    }

    /// Returns a slot to the pool. eBPF programs may still write to it.
    pub fn give_back(&mut self, slot: Slot) {
        self.resting.push(slot);
    }

    /// Returns the slots that have rested. The caller must wait for a while before the call, and clear the slots before
    /// the next [`Self::take`].
    pub fn rested(&mut self) -> Vec<Slot> {
        let rested = std::mem::take(&mut self.resting);
        self.free.extend(&rested);
        rested
    }
}
