//! How fast this machine's time stamp counter runs: an emulated CPU's counter is this one.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::qemu::Kilohertz;

/// Long enough for an error of a microsecond at either end to be 10 parts in a million.
const ENOUGH: Duration = Duration::from_millis(200);

/// The counter and the clock at one moment.
pub struct Stopwatch {
    ticks: u64,
    at: Instant,
}

impl Stopwatch {
    /// Reads both.
    pub fn start() -> Self {
        let read = || {
            let before = Instant::now();
            let ticks = ticks();
            (before.elapsed(), Self { ticks, at: before })
        };
        // An interrupt between the two readings shows in how long they took.
        let best = (0..10).map(|_| read()).min_by_key(|(took, _)| *took);
        best.map_or_else(|| read().1, |(_, stopwatch)| stopwatch)
    }

    /// The counter's rate since then, or over a fifth of a second if that is longer.
    pub fn rate(&self) -> Kilohertz {
        thread::sleep(ENOUGH.saturating_sub(self.at.elapsed()));
        let now = Self::start();
        let elapsed = now.at.duration_since(self.at).as_nanos();
        let khz = u128::from(now.ticks.wrapping_sub(self.ticks)) * 1_000_000 / elapsed.max(1);
        Kilohertz(u64::try_from(khz).unwrap_or(u64::MAX))
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and reading it changes nothing.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Only x86-64 has this counter; the search for QEMU refuses other machines before a rate is used.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let stopwatch = Stopwatch::start();
        let (Kilohertz(first), Kilohertz(second)) = (stopwatch.rate(), Stopwatch::start().rate());
        assert!(first > 100_000, "no CPU has run below 100 MHz for long: {first} kHz");
        assert!(first.abs_diff(second) < first / 1000, "{first} and {second} kHz");
    }
}
