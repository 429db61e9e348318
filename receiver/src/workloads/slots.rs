//! Slots, handed out to workloads.

use std::collections::VecDeque;

use super::Slot;

/// Slots for so many workloads. First come, first served; what is given back rests until it is cleared.
#[derive(Debug)]
pub struct Slots {
    free: VecDeque<Slot>,
    resting: Vec<Slot>,
}

impl Slots {
    /// Slots for `limit` workloads.
    pub fn new(limit: u16) -> Self {
        let free = (0..limit).map(|n| Slot(Slot::FIRST.0 + n)).collect();
        Self { free, resting: Vec::new() }
    }

    /// The slot that has been free for longest; `None` where all are taken or resting.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop_front()
    }

    /// Gives a slot back. Programs may still be about to write to it.
    pub fn give_back(&mut self, slot: Slot) {
        self.resting.push(slot);
    }

    /// Slots that were given back and can be cleared now: call it some time after, and clear what it yields before anything
    /// else is taken.
    pub fn rested(&mut self) -> Vec<Slot> {
        let rested = std::mem::take(&mut self.resting);
        self.free.extend(&rested);
        rested
    }
}
