//! CPU time that the whole node used, and the time that the hypervisor took from it.

use std::{
    collections::BTreeMap,
    fs, io,
    time::{Duration, Instant},
};

use super::{
    stat::{self, RESOLUTION, Times},
    tasks::Growth,
};

/// A difference of times.
type Nanoseconds = i64;

/// CPU time that the node used, and stolen time.
///
/// The kernel has no exact count of the node's CPU time. Timer ticks (`user`, `system` and so on in `/proc/stat`) miss half of
/// the work on an idle host. Idle time is measured on kernels with `NO_HZ`, so without stolen time elapsed time minus idle time
/// is exact, and includes interrupts on idle CPUs.
///
/// With stolen time there are two bounds. A part of it passed while a virtual CPU was idle, was woken and waited for a physical
/// CPU: the kernel counts this part as idle and as stolen. So the time used is between elapsed minus idle minus stolen
/// time, which subtracts this part twice, and elapsed minus idle. The run time of all tasks ([`Growth`]) is a lower bound too. The
/// larger lower bound of each interval serves.
#[derive(Debug)]
pub struct Busy {
    /// The last reading and its time.
    last: Option<(Instant, BTreeMap<u32, Times>)>,
    /// True if the run time of tasks leaves out interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`).
    separates_interrupts: bool,
    /// The sum of all intervals, which may fall by the resolution.
    sum: Nanoseconds,
    /// The highest sum so far.
    total: Nanoseconds,
    /// The lead of the sum over the lower bound. It is limited to the resolution.
    lead: Nanoseconds,
    /// Stolen time of all CPUs.
    steal: Duration,
}

/// Growth between two readings over the CPUs that are in both.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Elapsed time minus idle time.
    not_idle: Nanoseconds,
    steal: Nanoseconds,
    /// Time of tasks by timer ticks.
    ticks: Nanoseconds,
    interrupts: Nanoseconds,
    /// The largest error of the idle time.
    resolution: Nanoseconds,
}

impl Busy {
    /// Starts without a reading.
    pub const fn new(separates_interrupts: bool) -> Self {
        Self { last: None, separates_interrupts, sum: 0, total: 0, lead: 0, steal: Duration::ZERO }
    }

    /// Adds the time since the previous reading. `tasks` is the run time of tasks in this interval.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn read(&mut self, tasks: Growth) -> io::Result<()> {
        let times = stat::parse(&fs::read_to_string(stat::SOURCE)?, procfs::ticks_per_second());
        self.advance(Instant::now(), times, tasks);
        Ok(())
    }

    /// CPU time since the first reading. It never falls. A CPU counts from the first reading that it is in.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.unsigned_abs())
    }

    /// Stolen time of all CPUs since the first reading.
    pub const fn steal(&self) -> Duration {
        self.steal
    }

    fn advance(&mut self, now: Instant, times: BTreeMap<u32, Times>, tasks: Growth) {
        if let Some((then, before)) = self.last.take() {
            let elapsed = now.saturating_duration_since(then);
            let grown = times.iter().filter_map(|(cpu, times)| times.since(before.get(cpu)?));
            let mut interval = Interval::default();
            for mut cpu in grown {
                // A migrated virtual machine may have another count of stolen time.
                cpu.steal = cpu.steal.min(elapsed);
                self.steal += cpu.steal;
                // If the CPU lost ticks, the run time of all tasks is the lower bound.
                if !tasks.complete || cpu.fill(elapsed) {
                    interval.add(elapsed, &cpu);
                }
            }
            self.add(interval, tasks);
        }
        self.last = Some((now, times));
    }

    /// Adds an interval: not idle and not stolen, and as much of the stolen time as the lower bound requires.
    fn add(&mut self, interval: Interval, tasks: Growth) {
        let apart = if self.separates_interrupts { interval.interrupts } else { 0 };
        let ran = nanoseconds(tasks.time) + apart;
        let least = if tasks.complete { ran } else { ran.max(interval.ticks + interval.interrupts) };
        let used = interval.not_idle - interval.steal;
        self.lead = (self.lead + used - least).min(interval.resolution);
        let idle_and_stolen = (-self.lead).clamp(0, interval.steal);
        // Without `NO_HZ` idle time is counted by ticks, and the run time of all tasks is more exact.
        let wrong = if tasks.complete { (-self.lead - interval.resolution).max(0) } else { 0 };
        let correction = idle_and_stolen.max(wrong);
        self.lead = (self.lead + correction).max(-interval.resolution);
        self.sum += used + correction;
        self.total = self.total.max(self.sum);
    }
}

impl Interval {
    fn add(&mut self, elapsed: Duration, cpu: &Times) {
        self.not_idle += nanoseconds(elapsed) - nanoseconds(cpu.idle);
        self.steal += nanoseconds(cpu.steal);
        self.ticks += nanoseconds(cpu.tasks);
        self.interrupts += nanoseconds(cpu.interrupts);
        self.resolution += nanoseconds(RESOLUTION);
    }
}

fn nanoseconds(time: Duration) -> Nanoseconds {
    Nanoseconds::try_from(time.as_nanos()).unwrap_or(Nanoseconds::MAX)
}

#[cfg(test)]
mod tests;
