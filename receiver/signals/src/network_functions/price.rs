//! The price of a cycle on each CPU: nanoseconds of busy time for a counted cycle.
//!
//! A sample by the cycle counter represents a number of cycles, and a cycle's time differs by CPU and changes with the clock rate. The
//! price is the time for which the CPU was busy (elapsed time minus idle time of `/proc/stat`), divided by the cycles of all samples
//! outside of the idle loop. So an estimate is a share of the CPU's busy time. It stays right if the kernel loses cycles of all code alike:
//! throttled or multiplexed counters, and samples during other programs (`bpf_prog_active`). Stolen time counts for the work that it
//! interrupts, as with a timer.
//!
//! An idle time has an error of up to 20 ms, so a price needs half a second of busy time. It follows the clock rate with a delay of
//! [`WINDOW`] of busy time, or of one interval if that is longer. An interval in which a CPU was offline for less than half of the time
//! makes its price too high by at most this share, until the window has passed.

use std::{
    collections::BTreeMap,
    fs, io,
    time::{Duration, Instant},
};

use super::super::workload_cpu::stat::{self, Times};

/// A signed time, since the growth of a rounded time can be negative.
pub type Nanoseconds = i64;

/// The least busy time for a price.
const ENOUGH: Nanoseconds = 500_000_000;
/// The busy time that a price remembers.
const WINDOW: Nanoseconds = 1_000_000_000;

/// The busy time of each CPU.
pub struct BusyTimes(Option<(Instant, BTreeMap<u32, Times>)>);

impl BusyTimes {
    /// Starts without a reading.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns the busy time of each CPU since the last call. Omits CPUs that were offline meanwhile.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn read(&mut self) -> io::Result<BTreeMap<u32, Nanoseconds>> {
        let times = stat::parse(&fs::read_to_string(stat::SOURCE)?, procfs::ticks_per_second());
        Ok(self.advance(Instant::now(), times))
    }

    fn advance(&mut self, now: Instant, times: BTreeMap<u32, Times>) -> BTreeMap<u32, Nanoseconds> {
        let last = self.0.replace((now, times));
        let (Some((then, before)), Some((_, times))) = (last, &self.0) else { return BTreeMap::new() };
        let elapsed = now.saturating_duration_since(then);
        let busy = |(cpu, times): (&u32, &Times)| {
            let grown = times.since(before.get(cpu)?)?;
            grown.fill(elapsed).then(|| (*cpu, signed(elapsed) - signed(grown.idle)))
        };
        times.iter().filter_map(busy).collect()
    }
}

pub fn signed(time: Duration) -> Nanoseconds {
    Nanoseconds::try_from(time.as_nanos()).unwrap_or(Nanoseconds::MAX)
}

/// The busy time and the cycles that determine the price on a CPU.
#[derive(Debug, Default)]
pub struct Price {
    busy: f64,
    cycles: f64,
    /// The cycles of the CPU at the last call.
    last: u64,
    /// The busy time since the last sample, if the last interval had none.
    silent: Nanoseconds,
}

impl Price {
    /// Returns a price that is unknown. `cycles` is the number of counted cycles so far.
    pub fn since(cycles: u64) -> Self {
        Self { last: cycles, ..Self::default() }
    }

    /// Adds the busy time since the last call, and the counted cycles so far. `None` if the busy time is unknown.
    pub fn add(&mut self, busy: Option<Nanoseconds>, cycles: u64) {
        let grown = cycles.saturating_sub(std::mem::replace(&mut self.last, cycles));
        let Some(busy) = busy else {
            self.silent = 0;
            return;
        };
        self.silent += busy;
        if grown == 0 {
            return;
        }
        self.busy += std::mem::take(&mut self.silent) as f64;
        self.cycles += grown as f64;
        let share = WINDOW as f64 / self.busy;
        if (0.0..1.0).contains(&share) {
            self.busy *= share;
            self.cycles *= share;
        }
    }

    /// Forgets the busy time since the last sample: a new event counts from zero.
    pub const fn restart(&mut self) {
        self.silent = 0;
    }

    /// Returns nanoseconds for a cycle; `None` before the CPU was busy for long enough.
    pub fn get(&self) -> Option<f64> {
        (self.busy >= ENOUGH as f64 && self.cycles > 0.0).then(|| self.busy / self.cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    /// Returns a price after intervals of this busy time in milliseconds, with these millions of cycles.
    fn after(intervals: &[(Nanoseconds, u64)]) -> Price {
        let (mut price, mut cycles) = (Price::since(7), 7);
        for (busy, grown) in intervals {
            cycles += grown * 1_000_000;
            price.add(Some(busy * MS), cycles);
        }
        price
    }

    fn assert_price(price: &Price, expected: f64) {
        let found = price.get().expect("a price");
        assert!((found / expected - 1.0).abs() < 1e-3, "{found}, not {expected}");
    }

    #[test]
    fn a_price_is_busy_time_by_cycles() {
        assert_price(&after(&[(600, 1800)]), 1.0 / 3.0);
        // The kernel multiplexed the counter, and counted a quarter.
        assert_price(&after(&[(600, 450)]), 4.0 / 3.0);
        assert!(after(&[(499, 1500)]).get().is_none(), "too short");
        assert!(after(&[(600, 0)]).get().is_none(), "no cycles");
    }

    #[test]
    fn a_rounded_idle_time_does_not_add_up() {
        // 5 ms of busy time each: the idle time grows by more, or less, than it is.
        let intervals: Vec<_> = (0..200).map(|n| (if n % 2 == 0 { 15 } else { -5 }, 10)).collect();
        assert_price(&after(&intervals), 0.5);
    }

    #[test]
    fn busy_time_before_a_sample_belongs_to_it() {
        assert_price(&after(&[(300, 0), (300, 1200), (0, 0)]), 0.5);
        let mut price = after(&[(600, 1200), (30_000, 0)]);
        price.restart();
        price.add(Some(400 * MS), 7 + 2_000_000_000);
        assert_price(&price, 0.5);
        // The CPU was offline.
        let mut price = after(&[(600, 1200), (30_000, 0)]);
        price.add(None, 7 + 1_200_000_000);
        price.add(Some(400 * MS), 7 + 2_000_000_000);
        assert_price(&price, 0.5);
    }

    #[test]
    fn a_price_follows_the_clock_rate() {
        let mut price = after(&[(10_000, 10_000)]);
        assert_price(&price, 1.0);
        let mut cycles = 7 + 10_000 * 1_000_000;
        for _ in 0..5 {
            cycles += 4_000_000_000;
            price.add(Some(1000 * MS), cycles);
        }
        let found = price.get().expect("a price");
        assert!((0.25..0.27).contains(&found), "{found}");
    }

    #[test]
    fn the_price_of_a_nanosecond_is_one() {
        // A timer in the place of the counter, with a period of 50 ms, and 30% of busy time.
        let mut price = Price::since(0);
        let mut cycles = 0;
        for second in 1..=60 {
            cycles = (second * 300 / 50) * 50_000_000;
            price.add(Some(300 * MS), cycles);
        }
        assert_eq!(cycles, 18_000_000_000);
        assert_price(&price, 1.0);
    }

    #[test]
    fn only_cpus_that_were_online_have_busy_times() {
        let (mut busy, start) = (BusyTimes::new(), Instant::now());
        let ms = Duration::from_millis;
        let times = |idle, tasks| Times { idle: ms(idle), tasks: ms(tasks), ..Times::default() };
        assert_eq!(busy.advance(start, [(0, times(100, 0)), (1, times(100, 0))].into()), BTreeMap::new());
        // The columns of CPU 1 stopped, and CPU 2 appeared.
        let now = [(0, times(400, 600)), (1, times(200, 0)), (2, times(0, 0))];
        assert_eq!(busy.advance(start + ms(1000), now.into()), BTreeMap::from([(0, 700 * MS)]));
        // An idle time was reset, and another one is rounded up.
        let now = [(0, times(1410, 600)), (2, times(0, 0)), (1, times(0, 0))];
        assert_eq!(busy.advance(start + ms(2000), now.into()), BTreeMap::from([(0, -10 * MS)]));
    }
}
