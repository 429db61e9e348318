//! Times of each CPU in `/proc/stat`.

use std::{collections::BTreeMap, time::Duration};

/// The file.
pub const SOURCE: &str = "/proc/stat";

/// The largest error of the growth of an idle time: `idle` and `iowait` are rounded to clock ticks of 10 ms.
pub const RESOLUTION: Duration = Duration::from_millis(20);

/// Times of one CPU. The file has whole clock ticks (10 ms), rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Idle and waiting for I/O. On kernels with `NO_HZ` it is measured. It includes stolen time between the wakeup of an idle
    /// virtual CPU and its run.
    pub idle: Duration,
    /// Stolen by the hypervisor, while the CPU was idle or not.
    pub steal: Duration,
    /// In user and system mode, without interrupts: counted by timer ticks on most kernels.
    pub tasks: Duration,
    /// In hard and soft interrupts: exact with `CONFIG_IRQ_TIME_ACCOUNTING`, else counted by timer ticks.
    pub interrupts: Duration,
}

impl Times {
    /// Returns the growth since an earlier reading. `None` if idle time fell: some kernels reset it when a CPU comes back.
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            idle: self.idle.checked_sub(before.idle)?,
            steal: self.steal.saturating_sub(before.steal),
            tasks: self.tasks.saturating_sub(before.tasks),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
        })
    }

    /// Returns false if the CPU was offline for more than half of the `elapsed` time, or lost as many timer ticks: its columns stop
    /// meanwhile.
    pub fn fill(&self, elapsed: Duration) -> bool {
        self.all() * 2 + RESOLUTION >= elapsed
    }

    /// Returns the sum of all columns.
    fn all(&self) -> Duration {
        self.idle + self.steal + self.tasks + self.interrupts
    }
}

/// Returns the times of each online CPU, from lines of the form `cpu0 user nice system idle iowait irq softirq steal ...`.
pub fn parse(stat: &str, ticks_per_second: u64) -> BTreeMap<u32, Times> {
    let tick = 1_000_000_000 / ticks_per_second;
    let cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let number = words.next()?.parse().ok()?;
        let columns: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let time = |of: &[usize]| {
            let ticks =
                of.iter().filter_map(|column| columns.get(*column)).fold(0, |sum: u64, more| sum.saturating_add(*more));
            Duration::from_nanos(ticks.saturating_mul(tick))
        };
        let times =
            Times { idle: time(&[3, 4]), steal: time(&[7]), tasks: time(&[0, 1, 2]), interrupts: time(&[5, 6]) };
        Some((number, times))
    };
    stat.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_understood() {
        let stat = "cpu  122657 0 26308 220398 1304 0 2541 94 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu12 1 2 3 100 0 0 0 0 0 0\n\
                    intr 5 5\nctxt 9\n";
        let ticks = |[idle, steal, tasks, interrupts]: [u64; 4]| {
            let [idle, steal, tasks, interrupts] =
                [idle, steal, tasks, interrupts].map(|ticks| Duration::from_millis(ticks * 10));
            Times { idle, steal, tasks, interrupts }
        };
        let read = parse(stat, 100);
        assert_eq!(read, BTreeMap::from([(0, ticks([450, 8, 6, 13])), (12, ticks([100, 0, 6, 0]))]));
        assert_eq!(read[&0].all(), Duration::from_millis(4770));
        assert!(!parse(&std::fs::read_to_string(SOURCE).unwrap(), procfs::ticks_per_second()).is_empty());
    }
}
