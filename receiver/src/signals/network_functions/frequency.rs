//! The sampling frequency of each CPU: a CPU that is idle is rarely woken, and a busy one pays at most a fixed share of its time.

use std::{collections::BTreeMap, time::Duration};

use undercurrent_ebpf::abi::sample::SampleCells;

use super::settings::Settings;
use crate::kernel::cpu_clock::FIRST_PERIOD;

/// The largest share of a CPU's time for sampling.
const BUDGET: f64 = 0.001;
/// The time of a sample besides its stack, in seconds: the interrupt of the timer and the start of the program.
const INTERRUPT: f64 = 1e-6;
/// The samples of all CPUs per second at most: more do not make the totals of the node more precise, and each takes about a
/// microsecond of user space.
const NODE: f64 = 8_000.0;
/// A CPU with a smaller busy share is idle.
const IDLE: f64 = 0.02;
/// Samples after which a frequency is chosen.
const ENOUGH: u64 = 100;
/// Samples outside of the idle loop after which a frequency is chosen earlier.
const ENOUGH_BUSY: u64 = 5;
/// Smallest relative change of a period.
const STEP: f64 = 0.25;

/// The periods of all CPUs.
pub struct Frequencies {
    first: Duration,
    idle: Duration,
    min: f64,
    max: f64,
    cpus: BTreeMap<u32, Cpu>,
}

struct Cpu {
    period: Duration,
    /// The counts at the last call.
    last: SampleCells,
    /// The counts at the last choice.
    chosen: SampleCells,
}

impl Frequencies {
    /// Returns the periods before the first choice.
    pub fn new(settings: &Settings) -> Self {
        let (min, max) = (settings.min_frequency.hertz(), settings.max_frequency.hertz());
        let first = settings.min_frequency.period();
        Self { first, idle: settings.idle_frequency.period(), min, max: max.max(min), cpus: BTreeMap::new() }
    }

    /// Returns the periods to set, by CPU. `cells` are the counts of the CPUs that are online, `elapsed` is the time since the last
    /// call.
    pub fn choose(&mut self, cells: &[(u32, SampleCells)], elapsed: Duration) -> Vec<(u32, Duration)> {
        let max = self.max.min(NODE / cells.len().max(1) as f64).max(self.min);
        let (min, idle) = (self.min, self.idle);
        let mut changes = Vec::new();
        for (number, now) in cells {
            let Some(cpu) = self.cpus.get_mut(number) else {
                self.cpus.insert(*number, Cpu { period: self.first, last: *now, chosen: *now });
                if self.first != FIRST_PERIOD {
                    changes.push((*number, self.first));
                }
                continue;
            };
            let expected = elapsed.as_secs_f64() / cpu.period.as_secs_f64();
            // The kernel removes the event of a CPU that goes offline.
            let is_stopped = now.samples == cpu.last.samples && expected > 5.0;
            cpu.last = *now;
            match cpu.choice(now, min..=max, idle) {
                Some(period) => changes.push((*number, period)),
                None if is_stopped => changes.push((*number, cpu.period)),
                None => {}
            }
        }
        changes
    }
}

impl Cpu {
    /// Returns a new period; `None` if the period stays.
    fn choice(&mut self, now: &SampleCells, range: std::ops::RangeInclusive<f64>, idle: Duration) -> Option<Duration> {
        let samples = now.samples - self.chosen.samples;
        let busy = samples.saturating_sub(now.idle - self.chosen.idle);
        if samples < ENOUGH && busy < ENOUGH_BUSY {
            return None;
        }
        let cost = (now.time - self.chosen.time) as f64 / 1e9 / samples as f64 + INTERRUPT;
        self.chosen = *now;
        let period = if (busy as f64) < IDLE * samples as f64 {
            idle
        } else {
            Duration::from_secs_f64(1.0 / (BUDGET / cost).clamp(*range.start(), *range.end()))
        };
        let change = (period.as_secs_f64() / self.period.as_secs_f64() - 1.0).abs();
        (change > STEP).then(|| {
            self.period = period;
            period
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cells(samples: u64, idle: u64, time: u64) -> SampleCells {
        SampleCells { samples, idle, time, ..SampleCells::default() }
    }

    /// Returns the chosen frequencies in hertz, after a first call with zero counts.
    fn chosen(cells: &[(u32, SampleCells)]) -> Vec<(u32, f64)> {
        let mut frequencies = Frequencies::new(&Settings::default());
        let zero: Vec<_> = cells.iter().map(|(cpu, _)| (*cpu, SampleCells::default())).collect();
        assert_eq!(frequencies.choose(&zero, Duration::ZERO), []);
        let changes = frequencies.choose(cells, SECOND);
        changes.into_iter().map(|(cpu, period)| (cpu, (1.0 / period.as_secs_f64()).round())).collect()
    }

    #[test]
    fn idle_cpus_are_rarely_woken() {
        assert_eq!(chosen(&[(0, cells(100, 99, 0)), (1, cells(100, 0, 0))]), [(0, 10.0), (1, 997.0)]);
        // Not enough samples for a choice.
        assert_eq!(chosen(&[(0, cells(99, 99, 0)), (1, cells(4, 0, 0))]), []);
        assert_eq!(chosen(&[(0, cells(5, 0, 0))]), [(0, 997.0)]);
    }

    #[test]
    fn expensive_stacks_lower_the_frequency() {
        // Three microseconds for each stack.
        assert_eq!(chosen(&[(0, cells(100, 0, 300_000))]), [(0, 250.0)]);
        // The lower limit holds even if it exceeds the budget.
        assert_eq!(chosen(&[(0, cells(100, 0, 3_000_000))]), []);
    }

    #[test]
    fn many_cpus_share_the_samples_of_a_node() {
        let cells: Vec<_> = (0..32).map(|cpu| (cpu, cells(100, 0, 0))).collect();
        assert!(chosen(&cells).iter().all(|(_, frequency)| *frequency == 250.0));
    }

    #[test]
    fn a_stopped_event_is_set_again() {
        let mut frequencies = Frequencies::new(&Settings::default());
        assert_eq!(frequencies.choose(&[(3, cells(7, 7, 0))], Duration::ZERO), []);
        assert_eq!(frequencies.choose(&[(3, cells(7, 7, 0))], SECOND), [(3, FIRST_PERIOD)]);
        assert_eq!(frequencies.choose(&[(3, cells(8, 8, 0))], SECOND), []);
    }
}
