//! Measures the rate of this machine's time stamp counter, which is the counter of emulated CPUs too.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::qemu::Kilohertz;

/// Minimum duration of a measurement: an error of a microsecond at each end is 10 parts per million.
const ENOUGH: Duration = Duration::from_millis(200);

/// A pair of simultaneous readings of the counter and the clock.
pub struct Stopwatch {
    ticks: u64,
    at: Instant,
}

impl Stopwatch {
    /// Reads the counter and the clock.
    pub fn start() -> Self {
        let read = || {
            let before = Instant::now();
            let ticks = ticks();
            (before.elapsed(), Self { ticks, at: before })
        };
        // The fastest pair of readings had no interrupt between them.
        let best = (0..10).map(|_| read()).min_by_key(|(took, _)| *took);
        best.map_or_else(|| read().1, |(_, stopwatch)| stopwatch)
    }

    /// Returns the rate of the counter since the start. Waits until at least [`ENOUGH`] has passed.
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

/// Other architectures have no such counter. `Qemu::find` fails on them before the rate is used.
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
        assert!(first > 100_000, "implausible rate: {first} kHz");
        assert!(first.abs_diff(second) < first / 1000, "{first} and {second} kHz");
    }
}
