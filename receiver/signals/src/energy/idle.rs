//! The idle power of a domain.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::telemetry::{Microjoules, Watts};

/// The idle power: a fixed power, or the lowest power of the intervals in a window.
#[derive(Debug)]
pub struct Idle {
    fixed: Option<Watts>,
    window: Duration,
    /// The ends of intervals with their powers. Both rise: an interval is removed once a later one has a lower power.
    lowest: VecDeque<(Instant, Watts)>,
}

impl Idle {
    /// Creates an idle power. `fixed` replaces the lowest power of the window.
    pub const fn new(fixed: Option<Watts>, window: Duration) -> Self {
        Self { fixed, window, lowest: VecDeque::new() }
    }

    /// Returns the idle part of an interval's energy. The interval affects the idle power of later intervals only. The first
    /// interval is idle, because nothing is known about its idle power.
    pub fn part(&mut self, energy: Microjoules, length: Duration, end: Instant) -> Microjoules {
        let known = self.fixed.or_else(|| self.lowest.front().map(|(_, power)| *power));
        if self.fixed.is_none()
            && let Some(power) = energy.per(length)
        {
            self.observe(power, end);
        }
        known.map_or(energy, |power| power.over(length).min(energy))
    }

    fn observe(&mut self, power: Watts, end: Instant) {
        while self.lowest.back().is_some_and(|(_, known)| *known >= power) {
            self.lowest.pop_back();
        }
        self.lowest.push_back((end, power));
        while self.lowest.front().is_some_and(|(at, _)| end.saturating_duration_since(*at) > self.window) {
            self.lowest.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the idle parts of intervals of one second with these powers, in joules.
    fn parts(mut idle: Idle, powers: &[u64]) -> Vec<u64> {
        let start = Instant::now();
        let part = |(n, watts): (usize, &u64)| {
            idle.part(Microjoules(watts * 1_000_000), SECOND, start + SECOND * n as u32).0 / 1_000_000
        };
        powers.iter().enumerate().map(part).collect()
    }

    #[test]
    fn the_lowest_power_affects_later_intervals_only() {
        let idle = Idle::new(None, 100 * SECOND);
        assert_eq!(parts(idle, &[30, 50, 10, 40, 20]), [30, 30, 10, 10, 10]);
    }

    #[test]
    fn the_lowest_power_leaves_the_window() {
        let idle = Idle::new(None, 2 * SECOND);
        assert_eq!(parts(idle, &[10, 40, 50, 60, 60, 60]), [10, 10, 10, 10, 40, 50]);
    }

    #[test]
    fn a_fixed_power_is_used_from_the_start() {
        assert_eq!(parts(Idle::new(Some(Watts::new(20)), SECOND), &[30, 10, 50]), [20, 10, 20]);
    }
}
