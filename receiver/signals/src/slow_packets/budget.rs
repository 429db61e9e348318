//! The budget of spans, which the workloads share.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::workloads::Slot;

/// The time for which a workload's unused credit accumulates. The node's accumulates for twice this time.
const SECOND: Duration = Duration::from_secs(1);

/// A token bucket of the node, and one of each workload (deficit round robin without queues).
///
/// A workload is entitled to an equal part of the rate, at most half. A workload that exceeds its part takes a token only while half of the
/// node's bucket is left, so a workload within its part always finds tokens.
pub struct Budget {
    /// Tokens per second.
    rate: u32,
    node: Bucket,
    workloads: BTreeMap<Slot, Bucket>,
}

/// Time that pays for tokens.
struct Bucket {
    credit: Duration,
    last: Instant,
}

impl Bucket {
    fn refill(&mut self, now: Instant, most: Duration) {
        self.credit = (self.credit + (now - self.last)).min(most);
        self.last = now;
    }
}

impl Budget {
    /// Returns a full budget. One workload alone gets the tokens of one second at once.
    pub fn new(rate: u32) -> Self {
        Self { rate, node: Bucket { credit: 2 * SECOND, last: Instant::now() }, workloads: BTreeMap::new() }
    }

    /// Takes a token for a workload; returns false if there is none for it.
    pub fn take(&mut self, slot: Slot) -> bool {
        let (now, token) = (Instant::now(), SECOND / self.rate);
        let most = 2 * SECOND;
        self.node.refill(now, most);
        let is_active = |(other, bucket): &(&Slot, &Bucket)| **other != slot && now - bucket.last < SECOND;
        let sharers = 1 + self.workloads.iter().filter(is_active).count();
        let price = token.saturating_mul(u32::try_from(sharers.max(2)).unwrap_or(u32::MAX));
        let full = SECOND.max(price);
        let own = self.workloads.entry(slot).or_insert(Bucket { credit: price, last: now });
        own.refill(now, full);
        let is_entitled = own.credit >= price;
        let reserve = if is_entitled { Duration::ZERO } else { most / 2 };
        if self.node.credit < token + reserve {
            return false;
        }
        self.node.credit -= token;
        if is_entitled {
            own.credit -= price;
        }
        true
    }

    /// Forgets a workload.
    pub fn forget(&mut self, slot: Slot) {
        self.workloads.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: Slot = Slot(2);
    const VICTIM: Slot = Slot(3);

    fn taken(budget: &mut Budget, slot: Slot, attempts: usize) -> usize {
        (0..attempts).filter(|_| budget.take(slot)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn one_workload_gets_the_whole_rate() {
        for rate in [1, 2, 3, 10, 1000] {
            let mut budget = Budget::new(rate);
            let first = taken(&mut budget, FLOOD, 5000);
            assert_eq!(first, rate as usize);
            let mut later = 0;
            for _ in 0..1000 {
                tokio::time::advance(Duration::from_millis(20)).await;
                later += taken(&mut budget, FLOOD, 50);
            }
            let expected = 20 * rate as usize;
            assert!((expected - rate as usize - 1..=expected + 1).contains(&later), "{later} of {expected}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_bounds_the_tokens_of_all_workloads() {
        let mut budget = Budget::new(10);
        let mut all = |rounds: usize| (0..rounds * 50).filter(|n| budget.take(Slot((n % 50) as u16))).count();
        assert!(all(100) <= 20);
        let mut later = 0;
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(20)).await;
            later += all(2);
        }
        assert!((180..=200).contains(&later), "{later}");
    }

    #[tokio::test(start_paused = true)]
    async fn floods_leave_the_parts_of_other_workloads() {
        for floods in [1, 3] {
            let mut budget = Budget::new(10);
            let (mut kept, mut flooded, mut attempts) = (0, 0, 0);
            for tick in 0..3000 {
                tokio::time::advance(Duration::from_millis(10)).await;
                for flood in 0..floods {
                    flooded += taken(&mut budget, Slot(FLOOD.0 + 10 + flood), 100);
                }
                // Two packets a second.
                if tick % 50 == 0 {
                    attempts += 1;
                    kept += taken(&mut budget, VICTIM, 1);
                }
            }
            assert_eq!(kept, attempts, "{floods} floods");
            assert!((220..=260).contains(&flooded), "{flooded} tokens of {floods} floods");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_floods_have_equal_parts() {
        let mut budget = Budget::new(10);
        let mut both = [0, 0];
        for _ in 0..3000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            // One flood is a hundred times as large as the other.
            both[0] += taken(&mut budget, FLOOD, 1000);
            both[1] += taken(&mut budget, VICTIM, 10);
        }
        assert!(both.iter().all(|tokens| (130..=170).contains(tokens)), "{both:?}");
        budget.forget(FLOOD);
        assert_eq!(budget.workloads.len(), 1);
    }
}
