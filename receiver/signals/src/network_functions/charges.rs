//! The division of sampled time over workloads.

use std::collections::BTreeMap;

use undercurrent_ebpf::abi::sample::SampleHeader;

use super::{
    sum::{Counted, Sum},
    table::{EVENTS, Owner},
};
use crate::workloads::Slot;

/// What the time of a sample counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Charge {
    /// An event, by its index in [`EVENTS`], and the slot that it works for.
    Event(usize, Slot),
    /// A network softirq that interrupted a task of the slot.
    Interruption(Slot),
}

impl Charge {
    /// Returns the charges of a sample of an event.
    pub fn of(event: usize, header: &SampleHeader) -> impl Iterator<Item = Self> + use<> {
        let (owner, task) = (EVENTS[event].owner, Slot(header.task));
        let slot = match owner {
            Owner::Receiver => Slot(header.receiver),
            Owner::Task => task,
            Owner::Node | Owner::NodeSoftirq => Slot::NODE,
        };
        let interrupts = matches!(owner, Owner::Receiver | Owner::NodeSoftirq) && task != Slot::NODE;
        std::iter::once(Self::Event(event, slot)).chain(interrupts.then_some(Self::Interruption(task)))
    }

    /// Returns the slot.
    pub const fn slot(self) -> Slot {
        match self {
            Self::Event(_, slot) | Self::Interruption(slot) => slot,
        }
    }
}

/// Times by slot. None of them ever falls, until its slot is forgotten.
#[derive(Debug, Default)]
pub struct Charges(BTreeMap<Charge, Sum>);

impl Charges {
    /// Converts the weights of samples to times, by the price of each CPU. Samples of a CPU without a price wait.
    pub fn settle(&mut self, pending: &mut BTreeMap<(Charge, u32), Counted>, price: &impl Fn(u32) -> Option<f64>) {
        pending.retain(|(charge, cpu), counted| {
            let Some(price) = price(*cpu) else { return true };
            self.0.entry(*charge).or_default().add(counted, price);
            false
        });
    }

    /// Returns the sum of an event's samples for a slot.
    pub fn event(&self, event: usize, slot: Slot) -> Sum {
        self.0.get(&Charge::Event(event, slot)).copied().unwrap_or_default()
    }

    /// Returns the time of the events of a slot with such an owner, in nanoseconds.
    pub fn owned(&self, slot: Slot, owner: Owner) -> u64 {
        let events = (0..EVENTS.len()).filter(|event| EVENTS[*event].owner == owner);
        events.map(|event| self.event(event, slot).nanoseconds).sum()
    }

    /// Returns the time for which network softirqs interrupted the tasks of a slot, in nanoseconds.
    pub fn interrupted(&self, slot: Slot) -> u64 {
        self.0.get(&Charge::Interruption(slot)).map_or(0, |sum| sum.nanoseconds)
    }

    /// Removes the times of a slot.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|charge, _| charge.slot() != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str) -> usize {
        EVENTS.iter().position(|event| event.name == name).expect("an event")
    }

    fn charges(name: &str, receiver: u16, task: u16) -> Vec<Charge> {
        Charge::of(event(name), &SampleHeader { weight: 1, cpu: 0, receiver, task }).collect()
    }

    #[test]
    fn softirqs_count_for_the_receiver_and_calls_for_the_task() {
        let of = |name, slot| Charge::Event(event(name), Slot(slot));
        let receive = [of("receive_softirq", 7), Charge::Interruption(Slot(8))];
        assert_eq!(charges("receive_softirq", 7, 8), receive);
        assert_eq!(charges("receive_softirq", 7, Slot::NODE.0), receive[..1]);
        assert_eq!(charges("transmit_softirq", 7, 8), [of("transmit_softirq", 0), Charge::Interruption(Slot(8))]);
        assert_eq!(charges("socket_send", 7, 8), [of("socket_send", 8)]);
        assert_eq!(charges("kernel_thread", 7, 8), [of("kernel_thread", 0)]);
    }

    #[test]
    fn times_of_a_slot_are_forgotten_and_others_stay() {
        let mut pending = BTreeMap::new();
        for (slot, weight) in [(7, 30), (8, 5)] {
            for charge in Charge::of(0, &SampleHeader { weight: 1, cpu: 0, receiver: slot, task: slot }) {
                pending.entry((charge, 0)).or_insert_with(Counted::default).add(weight);
            }
        }
        let mut charges = Charges::default();
        charges.settle(&mut pending, &|_| None);
        assert_eq!((charges.owned(Slot(7), Owner::Receiver), pending.len()), (0, 4));
        charges.settle(&mut pending, &|_| Some(2.0));
        assert_eq!((charges.owned(Slot(7), Owner::Receiver), charges.interrupted(Slot(8)), pending.len()), (60, 10, 0));
        charges.forget(Slot(7));
        assert_eq!((charges.owned(Slot(7), Owner::Receiver), charges.owned(Slot(8), Owner::Receiver)), (0, 10));
    }
}
