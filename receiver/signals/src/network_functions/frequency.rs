//! The sampling frequency of each CPU: a CPU that is idle is rarely woken, and a busy one pays at most a fixed share of its time.

use std::{collections::BTreeMap, time::Duration};

use undercurrent_ebpf::abi::sample::SampleCells;

use super::{
    price::{Nanoseconds, signed},
    settings::Settings,
    source::{Observed, units},
};
use crate::kernel::cpu_events::CpuEvent;

/// The largest share of a CPU's time for sampling.
const BUDGET: f64 = 0.001;
/// The time of a sample besides its stack, in seconds: the interrupt and the start of the program.
const INTERRUPT: f64 = 1e-6;
/// The samples of all CPUs per second at most: more do not make the totals of the node more precise, and each takes about a
/// microsecond of user space.
const NODE: f64 = 8_000.0;
/// The period of an idle CPU as a multiple of the configured one. With a period of exactly 100 ms, work that recurs every 40 ms would
/// always be sampled at one of two phases. This multiple has the digits of the golden ratio, so samples are spread over all phases.
const STRETCH: f64 = 1.018_033_988_749_895;
/// A CPU with a smaller busy share is idle.
const IDLE: f64 = 0.02;
/// Samples after which a frequency is chosen.
const ENOUGH: u64 = 100;
/// Samples outside of the idle loop after which a frequency is chosen earlier.
const ENOUGH_BUSY: u64 = 5;
/// Smallest relative change of a period.
const STEP: f64 = 0.25;
/// Periods without a sample after which an event has stopped. A CPU with an unknown price can have a clock rate of a tenth of
/// [`FASTEST`](crate::kernel::cpu_events::FASTEST), and then a period takes ten times as long.
const SILENT: u32 = 20;
/// Restarts without a sample after which an event does not work. A CPU that goes offline needs one.
const RESTARTS: u32 = 3;

/// The periods of all CPUs.
pub struct Frequencies {
    event: CpuEvent,
    first: Duration,
    idle: Duration,
    min: f64,
    max: f64,
    cpus: BTreeMap<u32, Cpu>,
}

struct Cpu {
    period: Duration,
    /// The period of the event, in its units.
    set: u64,
    /// The time for which the event counted since its last sample or its last restart.
    silence: Nanoseconds,
    /// Restarts since the last sample.
    restarts: u32,
    /// True if the last restart was the last one that may have an effect.
    is_broken: bool,
    /// The counts at the last call.
    last: SampleCells,
    /// The counts at the last choice.
    chosen: SampleCells,
    /// The counted time since the last choice.
    since: Nanoseconds,
}

impl Frequencies {
    /// Returns the periods before the first choice.
    pub fn new(settings: &Settings, event: CpuEvent) -> Self {
        let (min, max) = (settings.min_frequency.hertz(), settings.max_frequency.hertz());
        let (first, idle) = (settings.min_frequency.period(), settings.idle_frequency.period().mul_f64(STRETCH));
        Self { event, first, idle, min, max: max.max(min), cpus: BTreeMap::new() }
    }

    /// Returns the periods to set, by CPU, in units of the event. `cpus` are the CPUs that are online.
    pub fn choose(&mut self, cpus: &[Observed]) -> Vec<(u32, u64)> {
        let max = self.max.min(NODE / cpus.len().max(1) as f64).max(self.min);
        let (event, min, idle) = (self.event, self.min, self.idle);
        let mut changes = Vec::new();
        for seen in cpus {
            let units = |period| units(event, seen.price, period);
            let Some(cpu) = self.cpus.get_mut(&seen.cpu) else {
                let set = units(self.first);
                let (last, chosen) = (seen.cells, seen.cells);
                self.cpus.insert(
                    seen.cpu,
                    Cpu { period: self.first, set, silence: 0, restarts: 0, is_broken: false, last, chosen, since: 0 },
                );
                if set != event.first_period() {
                    changes.push((seen.cpu, set));
                }
                continue;
            };
            let is_stopped = cpu.is_stopped(seen);
            let period = cpu.choice(seen, min..=max, idle).unwrap_or(cpu.period);
            let set = units(period);
            cpu.restarts += u32::from(is_stopped);
            cpu.is_broken = is_stopped && cpu.restarts == RESTARTS;
            if is_stopped || (set as f64 / cpu.set as f64 - 1.0).abs() > STEP {
                (cpu.period, cpu.set, cpu.silence) = (period, set, 0);
                changes.push((seen.cpu, set));
            }
        }
        changes
    }

    /// Returns the CPUs whose event counts, but does not interrupt the CPU after restarts either. Each is returned after one call of
    /// [`Self::choose`] only.
    pub fn broken(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().filter(|(_, cpu)| cpu.is_broken).map(|(number, _)| *number)
    }
}

impl Cpu {
    /// Returns true if the kernel has removed the event, because the CPU went offline.
    fn is_stopped(&mut self, seen: &Observed) -> bool {
        let is_silent = seen.cells.samples == self.last.samples;
        if is_silent {
            self.silence += seen.counted;
        } else {
            (self.silence, self.restarts) = (0, 0);
        }
        self.last = seen.cells;
        self.silence > signed(self.period * SILENT)
    }

    /// Returns the period for the samples since the last choice; `None` before there are enough.
    fn choice(&mut self, seen: &Observed, range: std::ops::RangeInclusive<f64>, idle: Duration) -> Option<Duration> {
        self.since += seen.counted;
        let (now, then) = (&seen.cells, &self.chosen);
        let samples = now.samples - then.samples;
        let busy = samples.saturating_sub(now.idle - then.idle);
        if samples < ENOUGH && busy < ENOUGH_BUSY {
            return None;
        }
        let cost = (now.time - then.time) as f64 / 1e9 / samples as f64 + INTERRUPT;
        let by_samples = busy as f64 / samples as f64;
        // A kernel may drop the samples of the idle loop.
        let price = seen.price.filter(|_| self.since > 0);
        let by_time = price.map_or(1.0, |price| (now.busy - then.busy) as f64 * price / self.since as f64);
        (self.chosen, self.since) = (*now, 0);
        Some(if by_samples.min(by_time) < IDLE {
            idle
        } else {
            Duration::from_secs_f64(1.0 / (BUDGET / cost).clamp(*range.start(), *range.end()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = 1_000_000_000;

    fn cells(samples: u64, idle: u64, time: u64) -> SampleCells {
        SampleCells { samples, idle, time, busy: (samples - idle) * 10_000_000, ..SampleCells::default() }
    }

    fn seen(cpu: u32, cells: SampleCells, counted: Nanoseconds, price: Option<f64>) -> Observed {
        Observed { cpu, cells, counted, price }
    }

    fn by_timer(cpus: &[(u32, SampleCells)]) -> Vec<Observed> {
        cpus.iter().map(|(cpu, cells)| seen(*cpu, *cells, SECOND, Some(1.0))).collect()
    }

    /// Returns the chosen frequencies in hertz, after a first call with zero counts.
    fn chosen(cells: &[(u32, SampleCells)]) -> Vec<(u32, f64)> {
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Clock);
        let zero: Vec<_> = cells.iter().map(|(cpu, _)| (*cpu, SampleCells::default())).collect();
        assert_eq!(frequencies.choose(&by_timer(&zero)), []);
        let changes = frequencies.choose(&by_timer(cells));
        changes.into_iter().map(|(cpu, period)| (cpu, (1e9 / period as f64).round())).collect()
    }

    #[test]
    fn idle_cpus_are_rarely_woken() {
        assert_eq!(chosen(&[(0, cells(100, 99, 0)), (1, cells(100, 0, 0))]), [(0, 10.0), (1, 997.0)]);
        // Not enough samples for a choice.
        assert_eq!(chosen(&[(0, cells(99, 99, 0)), (1, cells(4, 0, 0))]), []);
        assert_eq!(chosen(&[(0, cells(5, 0, 0))]), [(0, 997.0)]);
    }

    #[test]
    fn a_cpu_without_samples_of_its_idle_loop_is_idle() {
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Clock);
        let mut after = |samples, time| frequencies.choose(&[seen(0, cells(samples, 0, 0), time, Some(1.0))]).len();
        assert_eq!([after(0, SECOND), after(2, SECOND), after(4, SECOND), after(5, SECOND)], [0, 0, 0, 1]);
        assert_eq!(frequencies.cpus[&0].period, frequencies.idle);
    }

    #[test]
    fn samples_of_an_idle_cpu_have_all_phases_of_recurring_work() {
        let period = Frequencies::new(&Settings::default(), CpuEvent::Clock).idle.as_secs_f64() * 1e3;
        for cycle in [1.0, 4.0, 10.0, 20.0, 25.0, 40.0, 50.0, 80.0, 100.0, 200.0, 250.0, 1000.0] {
            for busy in [0.02, 0.1, 0.5] {
                let is_busy = |sample: &i32| (f64::from(*sample) * period).rem_euclid(cycle) < busy * cycle;
                let share = (0..600).filter(is_busy).count() as f64 / 600.0;
                assert!((share - busy).abs() < 0.025, "{share} instead of {busy}, every {cycle} ms");
            }
        }
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
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Clock);
        let mut at = |samples| frequencies.choose(&by_timer(&[(3, cells(samples, samples, 0))]));
        assert_eq!([at(7), at(7), at(8)], [vec![], vec![(3, CpuEvent::Clock.first_period())], vec![]]);
    }

    #[test]
    fn an_idle_cpu_keeps_its_cycle_counter() {
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Cycles);
        let mut after = |busy| frequencies.choose(&[seen(3, cells(7, 0, 0), busy, None)]);
        assert_eq!(after(0), []);
        // Rounded busy times of an idle CPU for an hour, by intervals of a second.
        assert!((0..3600).all(|n| after(if n % 2 == 0 { 10_000_000 } else { -10_000_000 }).is_empty()));
        assert_eq!(after(SECOND / 5), []);
        assert_eq!(after(SECOND / 5), [(3, CpuEvent::Cycles.first_period())]);
        assert_eq!(after(SECOND / 5), []);
    }

    #[test]
    fn a_counter_that_never_interrupts_is_reported_once() {
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Cycles);
        let mut reports = |samples, count| {
            let after = |_| {
                frequencies.choose(&[seen(3, cells(samples, 0, 0), SECOND, None)]);
                frequencies.broken().collect::<Vec<_>>()
            };
            (0..count).flat_map(after).collect::<Vec<_>>()
        };
        assert_eq!((reports(0, 3), reports(0, 1), reports(0, 10)), (vec![], vec![3], vec![]));
        // It works again, and stops.
        assert_eq!((reports(1, 3), reports(1, 1)), (vec![], vec![3]));
    }

    #[test]
    fn the_period_of_a_cycle_counter_follows_the_price() {
        let mut frequencies = Frequencies::new(&Settings::default(), CpuEvent::Cycles);
        let mut at = |samples, price| frequencies.choose(&[seen(0, cells(samples, 0, 0), SECOND, price)]);
        // At 5 GHz before the price is known.
        assert_eq!(at(1, None), []);
        assert_eq!(at(7, None), [(0, 5_015_045)]);
        // 2 GHz, a little more, and 4 GHz.
        assert_eq!(at(300, Some(0.5)), [(0, 2_006_018)]);
        assert_eq!(at(600, Some(0.45)), []);
        assert_eq!(at(900, Some(0.25)), [(0, 4_012_036)]);
    }
}
