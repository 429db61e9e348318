//! When to look at workloads whose processes are only just starting.

use std::time::Duration;

use tokio::time::Instant;

use super::CgroupId;

/// Milliseconds from one look to the next: a container's first processes are its runtime's, and become its own within
/// milliseconds on an idle machine and seconds on a busy one.
const WAITS: [u64; 6] = [0, 30, 120, 400, 1500, 5000];
/// Milliseconds between two times to look at all. To wake up costs as much as a look, so what is due by then is looked at
/// together.
const STEP: u64 = 50;

/// Workloads to look at, and when.
#[derive(Debug)]
pub struct RecentCgroups {
    begun: Instant,
    waiting: Vec<(Instant, CgroupId, usize)>,
}

impl Default for RecentCgroups {
    fn default() -> Self {
        Self { begun: Instant::now(), waiting: Vec::new() }
    }
}

impl RecentCgroups {
    /// A workload that was found, however old it is: to be looked at at once.
    pub fn found(&mut self, id: CgroupId) {
        self.again(id, 0);
    }

    /// A workload whose cgroup was just made: nobody is in it yet.
    pub fn born(&mut self, id: CgroupId) {
        self.again(id, 1);
    }

    /// A workload to be looked at once more.
    pub fn once(&mut self, id: CgroupId) {
        self.waiting.push((Instant::now(), id, WAITS.len()));
    }

    /// To be looked at again after its `looks`th look; no more after the last.
    pub fn again(&mut self, id: CgroupId, looks: usize) {
        let Some(wait) = WAITS.get(looks) else { return };
        let now = Instant::now();
        let due = match *wait {
            0 => now,
            wait => {
                let due = (now - self.begun).as_millis() as u64 + wait;
                self.begun + Duration::from_millis(due.next_multiple_of(STEP))
            }
        };
        self.waiting.push((due, id, looks + 1));
    }

    /// When the next look is due.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(due, ..)| *due).min()
    }

    /// Those that are due, with the number of this look; and those that are due so soon that whoever is awake already had
    /// better look now.
    pub fn take(&mut self, now: Instant) -> Vec<(CgroupId, usize)> {
        let soon = now + Duration::from_millis(STEP / 2);
        let due = self.waiting.extract_if(.., |(due, ..)| *due <= soon);
        due.map(|(_, id, looks)| (id, looks)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn looks_become_rarer_and_end() {
        let (mut young, begun) = (RecentCgroups::default(), Instant::now());
        young.found(CgroupId(5));
        let looks = times(&mut young, begun).await;
        assert_eq!(looks.len(), WAITS.len());
        assert_eq!(looks, [0, 50, 200, 600, 2100, 7100]);
        assert!(young.take(begun + Duration::from_secs(60)).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_just_made_is_looked_at_soon_and_together_with_others() {
        let (mut young, begun) = (RecentCgroups::default(), Instant::now());
        young.born(CgroupId(5));
        tokio::time::advance(Duration::from_millis(8)).await;
        young.born(CgroupId(6));
        let looks = times(&mut young, begun).await;
        assert_eq!(looks.len(), 2 * (WAITS.len() - 1));
        assert_eq!(looks[..6], [50, 50, 200, 200, 600, 600]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_awake_looks_a_little_early_and_not_at_once() {
        let mut young = RecentCgroups::default();
        tokio::time::advance(Duration::from_millis(15)).await;
        young.born(CgroupId(5));
        assert!(young.take(Instant::now()).is_empty());
        tokio::time::advance(Duration::from_millis(15)).await;
        assert_eq!(young.take(Instant::now()), [(CgroupId(5), 2)]);
    }

    /// Milliseconds from a time to every look.
    async fn times(young: &mut RecentCgroups, begun: Instant) -> Vec<u128> {
        let mut looks = Vec::new();
        while let Some(due) = young.due() {
            tokio::time::sleep_until(due).await;
            for (id, look) in young.take(due) {
                looks.push((due - begun).as_millis());
                young.again(id, look);
            }
        }
        looks
    }
}
