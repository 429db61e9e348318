//! Allocation of slots to workloads.
//!
//! A slot is the number by which programs count for a workload. Another workload may use it only when every total of its predecessor is
//! delivered, and no program can write to it any more:
//!
//! ```text
//!  free ──take──▶ Present ──cgroup removed──▶ Gone ──snapshot──▶ Final(t)     the snapshot of t has the last totals
//!   ▲                                                              │
//!   │                                               delivered up to t
//!   │                                                              ▼
//!   └──next tick──── resting ◀──delivered up to u── Expiring(u)               the snapshot of u ends the series
//!      clear words   give_back
//! ```
//!
//! [`Stage`](crate::workload::Stage) has these names. A program finds a slot in two steps, and the second is cached by socket:
//!
//! ```text
//!  cookie of the socket ──SOCKETS, if the epoch is current──────────────────────▶ slot
//!        └──otherwise──▶ owner (cgroup or namespace) ──OWNERS, cuckoo hashing──▶ slot ──▶ SOCKETS, with the epoch
//! ```
//!
//! The epoch ends after each change of `OWNERS` that an event or a scan causes, and after each snapshot. A program reads the epoch before `OWNERS`,
//! so a slot from the table before a change belongs to the epoch before it. A removed cgroup ends no epoch: its sockets count for its slot until
//! the next snapshot. The slot then rests for a whole interval, so an entry of an old epoch cannot count for the next workload.

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
