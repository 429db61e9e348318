//! Quotas of table entries and slots for each subtree. They prevent one party with many cgroups from filling the
//! tables.

use std::collections::HashMap;

use super::Subtree;

/// The reciprocal of the share of a table that one delegated subtree may use.
const SHARE: usize = 8;
/// The reciprocal of the share that all delegated subtrees together may use. The rest is reserved for the system.
const DELEGATED: usize = 2;
/// The maximum number of cgroups below the own cgroup of one container.
const NESTED: usize = 1024;

/// The number of entries that delegated subtrees use in one table. The system may use all remaining entries.
#[derive(Debug)]
pub struct Quotas {
    capacity: usize,
    taken: HashMap<Subtree, usize>,
    total: usize,
}

impl Quotas {
    /// Creates quotas for a table of this capacity.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, taken: HashMap::new(), total: 0 }
    }

    /// Returns true if a subtree may use one more entry.
    pub fn admits(&self, subtree: &Subtree) -> bool {
        let taken = self.taken.get(subtree).copied().unwrap_or(0);
        taken < self.limit(subtree) && (!subtree.is_delegated() || self.total < (self.capacity / DELEGATED).max(1))
    }

    /// Returns the maximum number of entries of a subtree. The minimum is one, even in a small table.
    pub fn limit(&self, subtree: &Subtree) -> usize {
        let share = (self.capacity / SHARE).max(1);
        match subtree {
            Subtree::System(_) => usize::MAX,
            Subtree::User(_) => share,
            Subtree::Container(_) => share.min(NESTED),
        }
    }

    /// Adds one entry to the use of a subtree.
    pub fn take(&mut self, subtree: &Subtree) {
        if subtree.is_delegated() {
            *self.taken.entry(subtree.clone()).or_default() += 1;
            self.total += 1;
        }
    }

    /// Subtracts one entry from the use of a subtree.
    pub fn give_back(&mut self, subtree: &Subtree) {
        let Some(taken) = self.taken.get_mut(subtree) else { return };
        *taken -= 1;
        self.total -= 1;
        if *taken == 0 {
            self.taken.remove(subtree);
        }
    }

    /// Returns true if no delegated subtree uses an entry.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.total == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cgroup::{CgroupPath, Uid};

    fn container(number: u32) -> Subtree {
        Subtree::Container(CgroupPath::new(format!("/docker/{number}").as_bytes()))
    }

    #[test]
    fn a_table_of_one_entry_admits_every_subtree() {
        let system = Subtree::System(b"system.slice".to_vec());
        let mut quotas = Quotas::new(1);
        assert!([Subtree::User(Uid(1)), container(1), system].iter().all(|subtree| quotas.admits(subtree)));
        quotas.take(&Subtree::User(Uid(1)));
        assert!(!quotas.admits(&Subtree::User(Uid(1))));
    }

    proptest! {
        #[test]
        fn delegated_subtrees_stay_within_their_shares_and_leave_half_to_the_system(
            capacity in 16_usize..20_000,
            steps in prop::collection::vec((0_u32..20, any::<bool>(), 1_usize..4000, prop::bool::weighted(0.2)), 1..40),
        ) {
            let mut quotas = Quotas::new(capacity);
            let mut model: HashMap<Subtree, usize> = HashMap::new();
            for (number, is_user, count, gives_back) in steps {
                let subtree = if is_user { Subtree::User(Uid(number)) } else { container(number) };
                let taken = model.entry(subtree.clone()).or_default();
                for _ in 0..count {
                    if gives_back && *taken > 0 {
                        quotas.give_back(&subtree);
                        *taken -= 1;
                    } else if !gives_back && quotas.admits(&subtree) {
                        quotas.take(&subtree);
                        *taken += 1;
                    }
                }
                prop_assert!(*taken <= capacity / SHARE);
                prop_assert!(is_user || *taken <= NESTED);
                prop_assert!(model.values().sum::<usize>() <= capacity / DELEGATED);
                prop_assert!(quotas.admits(&Subtree::System(b"system.slice".to_vec())));
            }
            for (subtree, taken) in model {
                (0..taken).for_each(|_| quotas.give_back(&subtree));
            }
            prop_assert!(quotas.is_empty());
        }
    }
}
