//! Estimates from a recording and from random clocks.

mod recording;

use proptest::prelude::*;

use super::*;

/// Returns the actual and the maximum error of a prediction, in nanoseconds.
fn apart(estimate: &Estimate, nic: i64, wall: i64) -> Option<(f64, f64)> {
    let predicted = estimate.conversion()?.wall(nic.cast_unsigned())?.cast_signed();
    Some((predicted.wrapping_sub(wall).abs() as f64, estimate.error()? * 1e9))
}

#[test]
fn actual_error_of_a_recording_is_within_the_estimated_error() {
    let (mut estimate, mut followed, mut steps) = (Estimate::default(), 0, Vec::new());
    for (second, (reading, wall)) in recording::read().into_iter().enumerate() {
        let before = apart(&estimate, reading.nic, wall);
        estimate.add(reading);
        let Some((apart, error)) = before else { continue };
        if estimate.conversion().is_none() {
            steps.push(second);
            continue;
        }
        assert!(apart <= error, "second {second}: the error is {apart} ns, the estimate {error} ns");
        followed += 1;
        if estimate.anchors.len() == READINGS {
            assert!(error < 4000.0, "second {second}: {error} ns");
            let rate = estimate.conversion().expect("a conversion").rate.cast_signed() as f64 / UNIT;
            assert!((rate - recording::RATE).abs() < 1e-6, "second {second}: {rate}");
        }
    }
    assert_eq!(steps, recording::STEPS, "the estimate detects exactly the steps of the clocks");
    assert_eq!(followed, recording::SECONDS - 2 - 2 * recording::STEPS.len());
}

#[test]
fn unknown_rates_and_steps_give_no_conversion() {
    let mut estimate = Estimate::default();
    let reading = Reading { before: 1_000_000, nic: 5_000, after: 1_001_000 };
    estimate.add(reading);
    assert_eq!((estimate.conversion(), estimate.error()), (None, None), "one reading gives no rate");
    estimate.add(reading);
    assert_eq!(estimate.conversion(), None, "a repeated reading gives no rate");
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

/// A NIC's clock with a constant rate.
#[derive(Clone, Copy, Debug)]
struct Even {
    start: i64,
    wall: i64,
    /// The rate of the wall clock relative to the NIC's clock, minus one.
    rate: f64,
}

impl Even {
    /// Returns the NIC's clock `elapsed` nanoseconds after the start.
    fn at(&self, elapsed: i64) -> i64 {
        self.start + elapsed - (elapsed as f64 * self.rate / (1.0 + self.rate)).round() as i64
    }

    /// Returns a reading with the duration `bracket`; `share` is the position of the NIC's reading within it.
    fn read(&self, elapsed: i64, bracket: i64, share: f64) -> Reading {
        let before = self.wall + elapsed - (bracket as f64 * share) as i64;
        Reading { before, nic: self.at(elapsed), after: before + bracket }
    }
}

proptest! {
    #[test]
    fn error_of_a_constant_rate_is_within_the_estimate(
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
        prop_assert!(estimate.anchors.len() >= 2, "the estimate detected a step of a clock without steps");
        let (apart, error) = apart(&estimate, clock.at(elapsed + later), wall + elapsed + later).expect("known");
        // The test rounds its clock values too.
        prop_assert!(apart <= error + 2.0, "the error is {} ns, the estimate {} ns", apart, error);
    }
}
