//! When to look at workloads whose processes are only just starting.

use std::time::Duration;

use tokio::time::Instant;

use super::CgroupId;

/// Milliseconds from one look to the next: a container's first processes are its runtime's, and become its own within milliseconds on
/// an idle machine and seconds on a busy one.
const WAITS: [u64; 9] = [0, 10, 20, 50, 100, 250, 500, 1000, 4000];

/// Workloads to look at, and when.
#[derive(Debug, Default)]
pub struct Young {
    waiting: Vec<(Instant, CgroupId, usize)>,
}

impl Young {
    /// A workload that was not looked at yet.
    pub fn add(&mut self, id: CgroupId) {
        self.again(id, 0);
    }

    /// To be looked at again after its `looks`th look; no more after the last.
    pub fn again(&mut self, id: CgroupId, looks: usize) {
        if let Some(wait) = WAITS.get(looks) {
            self.waiting.push((Instant::now() + Duration::from_millis(*wait), id, looks + 1));
        }
    }

    /// When the next look is due.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(due, ..)| *due).min()
    }

    /// Those that are due, with the number of this look.
    pub fn take(&mut self, now: Instant) -> Vec<(CgroupId, usize)> {
        let due = self.waiting.extract_if(.., |(due, ..)| *due <= now);
        due.map(|(_, id, looks)| (id, looks)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn looks_become_rarer_and_end() {
        let (mut young, begun) = (Young::default(), Instant::now());
        young.add(CgroupId(5));
        let mut looks = Vec::new();
        while let Some(due) = young.due() {
            tokio::time::sleep_until(due).await;
            for (id, look) in young.take(due) {
                looks.push(due - begun);
                young.again(id, look);
            }
        }
        assert_eq!(looks.first(), Some(&Duration::ZERO));
        assert_eq!(looks.len(), WAITS.len());
        assert!(looks.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(young.take(begun + Duration::from_secs(60)).is_empty());
    }
}
