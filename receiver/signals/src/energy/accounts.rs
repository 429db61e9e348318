//! The energy of each workload, by domain, use and source.

use std::collections::BTreeMap;

use super::{
    super::divide::divide,
    points::{self, Basis, Domain, Origin, Part, Use},
};
use crate::{
    telemetry::{Microjoules, Point, UnixNanos},
    workloads::Slot,
};

/// CPU use of a workload in an interval: nanoseconds or weighted cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// Network events.
    pub network: u64,
    /// Other work.
    pub compute: u64,
}

/// Totals by slot.
#[derive(Debug, Default)]
pub struct Accounts(BTreeMap<Slot, Account>);

#[derive(Debug)]
struct Account {
    start: UnixNanos,
    totals: BTreeMap<Part, Microjoules>,
}

/// The energy of a domain in an interval.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The domain.
    pub domain: Domain,
    /// The kind of its source.
    pub origin: Origin,
    /// The unit of the uses.
    pub basis: Basis,
    /// The energy, with the idle part.
    pub energy: Microjoules,
    /// The part of the energy that counts for the node.
    pub idle: Microjoules,
}

impl Accounts {
    /// Removes the slots that have another start time, or none.
    pub fn retain(&mut self, start: impl Fn(Slot) -> Option<UnixNanos>) {
        self.0.retain(|slot, account| start(*slot) == Some(account.start));
    }

    /// Divides the active part of an amount over the slots by their CPU use. Without any use it counts for the node, as `compute`.
    /// The parts add up to the amount exactly.
    pub fn divide(&mut self, amount: Amount, uses: &BTreeMap<Slot, CpuUse>, start: impl Fn(Slot) -> Option<UnixNanos>) {
        let active = amount.energy.saturating_sub(amount.idle);
        let known = uses.iter().filter(|(slot, _)| start(**slot).is_some());
        let (parts, weights): (Vec<_>, Vec<_>) = known
            .flat_map(|(slot, used)| [((*slot, Use::Network), used.network), ((*slot, Use::Compute), used.compute)])
            .filter(|(_, weight)| *weight > 0)
            .unzip();
        match divide(active.0, &weights) {
            Some(energies) => {
                for ((slot, of), energy) in parts.into_iter().zip(energies) {
                    self.add(slot, amount, of, Microjoules(energy), start(slot));
                }
            }
            None => self.add(Slot::NODE, amount, Use::Compute, active, start(Slot::NODE)),
        }
        self.add(Slot::NODE, amount, Use::Idle, amount.energy.min(amount.idle), start(Slot::NODE));
    }

    fn add(&mut self, slot: Slot, amount: Amount, of: Use, energy: Microjoules, start: Option<UnixNanos>) {
        if energy == Microjoules::default() {
            return;
        }
        // A change of the basis does not end the series of the idle part.
        let basis = if of == Use::Idle { Basis::CpuTime } else { amount.basis };
        let account =
            self.0.entry(slot).or_insert_with(|| Account { start: start.unwrap_or_default(), totals: BTreeMap::new() });
        *account.totals.entry((amount.domain, amount.origin, basis, of)).or_default() += energy;
    }

    /// Returns the points of every slot.
    pub fn points(&self) -> impl Iterator<Item = (Slot, Vec<Point>)> {
        self.0.iter().map(|(slot, account)| {
            let point = |(part, energy): (&Part, &Microjoules)| points::divided(*part, account.start, *energy);
            (*slot, account.totals.iter().map(point).collect())
        })
    }

    /// Returns the sum of a domain's totals.
    #[cfg(test)]
    pub fn sum(&self, domain: Domain) -> Microjoules {
        let totals = self.0.values().flat_map(|account| &account.totals);
        totals.filter(|((of, ..), _)| *of == domain).map(|(_, energy)| *energy).sum()
    }

    /// Returns the sum of a slot's totals for a use.
    pub fn total(&self, slot: Slot, used_for: Use) -> Microjoules {
        let totals = self.0.get(&slot).into_iter().flat_map(|account| &account.totals);
        totals.filter(|((.., used), _)| *used == used_for).map(|(_, energy)| *energy).sum()
    }
}

#[cfg(test)]
mod tests;
