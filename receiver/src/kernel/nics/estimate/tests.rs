//! Estimates from a recording, and from clocks of every kind.

mod recording;

use proptest::prelude::*;

use super::*;

/// How far a prediction is from the truth, and how far it may be, in nanoseconds.
fn apart(estimate: &Estimate, nic: i64, wall: i64) -> Option<(f64, f64)> {
    let predicted = estimate.conversion()?.wall(nic.cast_unsigned())?.cast_signed();
    Some((predicted.wrapping_sub(wall).abs() as f64, estimate.error()? * 1e9))
}

#[test]
fn a_recording_is_followed_within_the_error_that_is_told() {
    let (mut estimate, mut followed, mut steps) = (Estimate::default(), 0, Vec::new());
    for (second, (reading, wall)) in recording::read().into_iter().enumerate() {
        let before = apart(&estimate, reading.nic, wall);
        estimate.add(reading);
        let Some((apart, error)) = before else { continue };
        if estimate.conversion().is_none() {
            steps.push(second);
            continue;
        }
        assert!(apart <= error, "second {second}: {apart} ns from the truth, and {error} ns were told");
        followed += 1;
        if estimate.anchors.len() == READINGS {
            assert!(error < 4000.0, "second {second}: {error} ns");
            let rate = estimate.conversion().expect("a conversion").rate.cast_signed() as f64 / UNIT;
            assert!((rate - recording::RATE).abs() < 1e-6, "second {second}: {rate}");
        }
    }
    assert_eq!(steps, recording::STEPS, "clocks that are set are found out, and nothing else is taken for that");
    assert_eq!(followed, recording::SECONDS - 2 - 2 * recording::STEPS.len());
}

#[test]
fn nothing_is_told_of_what_is_not_known() {
    let mut estimate = Estimate::default();
    let reading = Reading { before: 1_000_000, nic: 5_000, after: 1_001_000 };
    estimate.add(reading);
    assert_eq!((estimate.conversion(), estimate.error()), (None, None), "one reading tells no rate");
    estimate.add(reading);
    assert_eq!(estimate.conversion(), None, "nor does it twice");
    let later = Reading { before: 2_000_000, nic: 1_005_000, after: 2_001_000 };
    estimate.add(later);
    let conversion = estimate.conversion().expect("two readings");
    assert_eq!((conversion.rate, conversion.wall(1_005_000)), (0, Some(2_000_500)));
    assert_eq!(conversion.wall(1_005_000 + (1 << 33)), None, "too far from the last reading");
    estimate.add(reading);
    assert_eq!(estimate.conversion(), None, "a NIC's clock that goes back was set");
    estimate.add(Reading { nic: 1_005_000, ..reading });
    assert_eq!(estimate.conversion(), None, "a NIC's clock that stands still");
    estimate.add(later);
    estimate.forget();
    assert_eq!(estimate.conversion(), None);
}

/// A NIC's clock that runs evenly: what it says at a time, and how fast it is.
#[derive(Clone, Copy, Debug)]
struct Even {
    start: i64,
    wall: i64,
    /// By how much faster the wall clock is.
    rate: f64,
}

impl Even {
    /// The NIC's clock so many nanoseconds after the start.
    fn at(&self, elapsed: i64) -> i64 {
        self.start + elapsed - (elapsed as f64 * self.rate / (1.0 + self.rate)).round() as i64
    }

    /// A reading that took so long, at a share of the way.
    fn read(&self, elapsed: i64, bracket: i64, share: f64) -> Reading {
        let before = self.wall + elapsed - (bracket as f64 * share) as i64;
        Reading { before, nic: self.at(elapsed), after: before + bracket }
    }
}

proptest! {
    #[test]
    fn an_even_clock_is_never_further_off_than_is_told(
        start in 0..i64::MAX / 2,
        wall in 0..i64::MAX / 2,
        rate in -2e-4..2e-4,
        readings in prop::collection::vec((0..2_000_000_i64, 1..100_000_i64, 0.0..=1.0), 2..30),
        later in 0..1_000_000_000_i64,
    ) {
        let (clock, mut estimate, mut elapsed) = (Even { start, wall, rate }, Estimate::default(), 0);
        for (late, bracket, share) in readings {
            elapsed += 1_000_000_000 + late;
            estimate.add(clock.read(elapsed, bracket, share));
        }
        prop_assert!(estimate.anchors.len() >= 2, "an even clock was taken for one that is set");
        let (apart, error) = apart(&estimate, clock.at(elapsed + later), wall + elapsed + later).expect("known");
        // The numbers of the test itself are rounded too.
        prop_assert!(apart <= error + 2.0, "{} ns off, and {} ns were told", apart, error);
    }
}
