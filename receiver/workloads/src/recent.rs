//! A schedule of reads of the processes of recent workloads.

use std::time::Duration;

use tokio::time::Instant;

use super::CgroupId;

/// Milliseconds between reads. The first processes of a container are the runtime's. They execute the container's
/// program within milliseconds on an idle machine, and within seconds on a busy one.
const WAITS: [u64; 6] = [0, 30, 120, 400, 1500, 5000];
/// Granularity of the schedule, in milliseconds. A wakeup costs as much as a read, so reads are batched.
const STEP: u64 = 50;

/// Workloads and the times of their next reads.
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
    /// Schedules an immediate read of a workload of unknown age.
    pub fn found(&mut self, id: CgroupId) {
        self.again(id, 0);
    }

    /// Schedules a read of a workload with a new cgroup, which has no process yet.
    pub fn born(&mut self, id: CgroupId) {
        self.again(id, 1);
    }

    /// Schedules a single read.
    pub fn once(&mut self, id: CgroupId) {
        self.waiting.push((Instant::now(), id, WAITS.len()));
    }

    /// Schedules the read after read number `looks`, unless that was the last one.
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

    /// Returns the time of the next read.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(due, ..)| *due).min()
    }

    /// Returns the due workloads, with the number of this read. Includes workloads that are due within half a step, to
    /// save a wakeup.
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

    /// Returns the times of all reads, in milliseconds after `begun`.
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
