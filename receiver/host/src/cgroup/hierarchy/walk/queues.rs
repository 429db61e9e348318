//! The pending visits of a walk, with a queue for each subtree: one subtree cannot use up the limit of another.

use std::collections::{HashMap, VecDeque};

use super::Visit;
use crate::cgroup::{Quotas, Subtree};

/// The reciprocal of the share of the limit that is reserved for delegated subtrees, in addition to the system's
/// cgroups.
const RESERVE: usize = 8;

/// One queue for each subtree, visited in round-robin order (max-min fairness): first the subtrees of the system, then the
/// delegated ones, within their quotas. A walk that reaches its limit leaves out cgroups of the largest subtrees only.
pub struct Queues {
    limit: usize,
    /// True if each subtree has a separate queue.
    is_fair: bool,
    system: Turns,
    delegated: Turns,
    quotas: Quotas,
}

impl Queues {
    /// Creates queues for a walk through the cgroups of all parties. The walk visits at most `limit` cgroups of the
    /// system. Delegated subtrees get the rest of the limit, or an eighth of the limit if less is left.
    pub fn fair(limit: usize) -> Self {
        Self { is_fair: true, ..Self::single(limit) }
    }

    /// Creates a single queue for a walk through the cgroups of one party, breadth first, with at most `limit` visits.
    pub fn single(limit: usize) -> Self {
        let (system, delegated) = (Turns::default(), Turns::default());
        Self { limit, is_fair: false, system, delegated, quotas: Quotas::new(limit) }
    }

    /// Queues a visit. Returns false if the queue is full. The first visit is always admitted.
    pub(super) fn push(&mut self, visit: Visit) -> bool {
        let subtree = if self.is_fair { Subtree::containing(&visit.path) } else { Subtree::System(Vec::new()) };
        if subtree.is_delegated() {
            let has_room = self.quotas.admits(&subtree);
            if has_room {
                self.quotas.take(&subtree);
                self.delegated.push(subtree, visit);
            }
            return has_room;
        }
        // A full queue still admits a subtree up to its fair share: round-robin scheduling then cuts larger subtrees.
        let has_room = self.system.taken < self.limit.max(1) || self.system.is_below_share(&subtree, self.limit);
        if has_room {
            self.system.push(subtree, visit);
        }
        has_room
    }

    /// Returns the next visit; `None` after the last visit or at the limit.
    pub(super) fn pop(&mut self) -> Option<Visit> {
        let system = if self.system.visited < self.limit.max(1) { self.system.pop() } else { None };
        let left = (self.limit - self.system.visited.min(self.limit)).max(self.limit / RESERVE);
        system.or_else(|| if self.delegated.visited < left { self.delegated.pop() } else { None })
    }

    /// Returns the number of visits beyond the limit.
    pub(super) fn left(&self) -> usize {
        [&self.system, &self.delegated].into_iter().map(|turns| turns.taken - turns.visited).sum()
    }
}

/// One queue for each subtree, served in round-robin order.
#[derive(Default)]
struct Turns {
    queues: Vec<Queue>,
    by_subtree: HashMap<Subtree, usize>,
    /// Indexes of the non-empty queues; the next queue is first.
    turns: VecDeque<usize>,
    taken: usize,
    visited: usize,
}

#[derive(Default)]
struct Queue {
    visits: VecDeque<Visit>,
    /// The number of visits that were ever queued here.
    taken: usize,
}

impl Turns {
    /// Returns true if a subtree has used less than its fair share of a limit.
    fn is_below_share(&self, subtree: &Subtree, limit: usize) -> bool {
        let known = self.by_subtree.get(subtree).map(|queue| self.queues[*queue].taken);
        let subtrees = self.queues.len() + usize::from(known.is_none());
        known.unwrap_or(0) < limit / subtrees
    }

    fn push(&mut self, subtree: Subtree, visit: Visit) {
        let known = self.queues.len();
        let index = *self.by_subtree.entry(subtree).or_insert(known);
        if index == known {
            self.queues.push(Queue::default());
        }
        let queue = &mut self.queues[index];
        if queue.visits.is_empty() {
            self.turns.push_back(index);
        }
        queue.visits.push_back(visit);
        queue.taken += 1;
        self.taken += 1;
    }

    fn pop(&mut self) -> Option<Visit> {
        let index = self.turns.pop_front()?;
        let queue = &mut self.queues[index];
        let visit = queue.visits.pop_front()?;
        if !queue.visits.is_empty() {
            self.turns.push_back(index);
        }
        self.visited += 1;
        Some(visit)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use proptest::prelude::*;

    use super::*;
    use crate::cgroup::CgroupPath;

    fn visit(path: &str) -> Visit {
        Visit { directory: PathBuf::new(), path: CgroupPath::new(path.as_bytes()), depth: 0 }
    }

    /// Pushes the given number of visits below each parent. Returns the visits made for each subtree, and the number
    /// beyond the limit.
    fn visited(limit: usize, parents: &[(String, usize)]) -> (BTreeMap<Subtree, usize>, usize) {
        let mut queues = Queues::fair(limit);
        let mut refused = 0;
        for (parent, count) in parents {
            refused += (0..*count).filter(|n| !queues.push(visit(&format!("{parent}/n{n}")))).count();
        }
        let mut visited: BTreeMap<Subtree, usize> = BTreeMap::new();
        while let Some(visit) = queues.pop() {
            *visited.entry(Subtree::containing(&visit.path)).or_default() += 1;
        }
        (visited, refused + queues.left())
    }

    proptest! {
        #[test]
        fn no_subtree_is_cut_below_its_share(
            limit in 16_usize..400,
            system in prop::collection::vec(0_usize..900, 1..8),
            users in prop::collection::vec(0_usize..900, 0..8),
        ) {
            let system = system.into_iter().enumerate().map(|(n, count)| (format!("/system{n}.slice"), count));
            let users = users.into_iter().enumerate().map(|(n, count)| (format!("/user.slice/user-{n}.slice"), count));
            let parents: Vec<(String, usize)> = system.clone().chain(users).collect();
            let (visited, beyond) = visited(limit, &parents);
            let total: usize = visited.values().sum();
            prop_assert_eq!(total + beyond, parents.iter().map(|(_, count)| count).sum::<usize>());
            prop_assert!(total <= limit + limit / RESERVE);
            let share = limit / system.len();
            for (parent, count) in system {
                let subtree = Subtree::System(parent.trim_start_matches('/').as_bytes().to_vec());
                let found = visited.get(&subtree).copied().unwrap_or(0);
                prop_assert!(found >= count.min(share), "{parent}: {found} of {count}");
            }
            for (subtree, found) in visited.iter().filter(|(subtree, _)| subtree.is_delegated()) {
                prop_assert!(*found <= limit / 8, "{subtree:?}");
            }
        }
    }
}
