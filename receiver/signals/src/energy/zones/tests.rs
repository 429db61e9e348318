//! Counters that wrap around, restart, vanish and fail.

use proptest::prelude::*;

use super::*;
use crate::{
    sysfs::{Meter, Unreadable},
    telemetry::Data,
};

/// The range of many Intel processors.
const RANGE: u64 = 262_143_328_850;

fn meter(id: &str, reading: Result<Quantity, Unreadable>) -> Meter {
    Meter { id: id.to_owned(), driver: Driver::Rapl, object: Object::Package, reading }
}

fn counter(energy: u64) -> Result<Quantity, Unreadable> {
    Ok(Quantity::Energy(Microjoules(energy), Some(Microjoules(RANGE))))
}

/// Zones with readings at seconds since the start. The start time of a series is the second of its first reading.
struct Bench {
    zones: Zones,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { zones: Zones::default(), start: Instant::now() }
    }

    fn read(&mut self, second: f64, meters: Vec<Meter>) {
        let now = self.start + Duration::from_secs_f64(second);
        self.zones.update(&Meters { meters, problem: None }, now, UnixNanos(second as u64));
    }

    fn one(&mut self, second: f64, reading: Result<Quantity, Unreadable>) {
        self.read(second, vec![meter("package-0", reading)]);
    }

    /// Returns the start times and the energy of each exported series, in joules.
    fn points(&self) -> Vec<(u64, f64)> {
        let [metric, _] = self.zones.metrics();
        let value = |point: &Point| match point.data {
            Data::Double(joules) => (point.start.0, joules),
            _ => panic!("{point:?}"),
        };
        metric.points.iter().map(value).collect()
    }

    fn grown(&self) -> Option<u64> {
        self.zones.iter().next().and_then(Zone::grown).map(|growth| growth.0)
    }
}

#[test]
fn a_counter_counts_from_its_first_reading() {
    let mut bench = Bench::new();
    bench.one(1.0, counter(5_000_000));
    assert_eq!((bench.points(), bench.grown()), (vec![(1, 0.0)], None));
    bench.one(2.0, counter(7_500_000));
    assert_eq!((bench.points(), bench.grown()), (vec![(1, 2.5)], Some(2_500_000)));
    bench.zones.take();
    assert_eq!(bench.grown(), Some(0));
}

#[test]
fn a_counter_that_wraps_around_continues() {
    let mut bench = Bench::new();
    bench.one(1.0, counter(RANGE - 10_000_000));
    bench.one(2.0, counter(20_000_000));
    assert_eq!(bench.points(), [(1, 30.0)]);
}

#[test]
fn a_counter_that_was_reset_starts_a_new_series() {
    let mut bench = Bench::new();
    bench.one(1.0, counter(100_000_000_000));
    bench.one(2.0, counter(100_001_000_000));
    bench.one(3.0, counter(4_000_000));
    assert_eq!((bench.points(), bench.grown()), (vec![(3, 0.0)], None), "162 kJ in a second is no wrap");
    bench.one(4.0, counter(5_000_000));
    assert_eq!(bench.points(), [(3, 1.0)]);
}

#[test]
fn a_counter_without_a_range_that_decreased_starts_a_new_series() {
    let counter = |energy| Ok(Quantity::Energy(Microjoules(energy), None));
    let mut bench = Bench::new();
    bench.one(1.0, counter(9_000_000));
    bench.one(500.0, counter(10_000_000));
    assert_eq!(bench.points(), [(1, 1.0)]);
    bench.one(501.0, counter(8_000_000));
    assert_eq!(bench.points(), [(501, 0.0)]);
}

#[test]
fn readings_are_due_before_two_wraps() {
    let mut bench = Bench::new();
    assert_eq!(bench.zones.due(), None);
    bench.one(1.0, counter(0));
    let period = bench.zones.due().unwrap() - bench.start - Duration::from_secs(1);
    assert_eq!(period.as_secs(), 65, "262 kJ at 2 kW take 131 s");
    // A reading that is too late has an unknown growth.
    bench.one(1.0 + 140.0, counter(5_000_000));
    assert_eq!(bench.points(), [(141, 0.0)]);
}

#[test]
fn a_power_is_integrated() {
    let power = |microwatts| Ok(Quantity::Power(Watts::from_microwatts(microwatts)));
    let mut bench = Bench::new();
    bench.one(0.0, power(10_000_000));
    bench.one(2.0, power(20_000_000));
    assert_eq!(bench.points(), [(0, 30.0)]);
    assert_eq!(bench.zones.due(), Some(bench.start + Duration::from_secs(3)));
    // Parts below a microjoule add up.
    bench.one(3.0, power(0));
    for n in 1..=100 {
        bench.one(3.0 + f64::from(n) * 0.1, power(1));
    }
    let (_, joules) = bench.points()[0];
    assert!((40.000_009..=40.000_010).contains(&joules), "{joules}");
}

#[test]
fn unreadable_and_missing_meters_have_no_points() {
    let mut bench = Bench::new();
    bench.one(1.0, counter(1_000_000));
    bench.one(2.0, Err(Unreadable::Garbage));
    assert_eq!(bench.points(), []);
    bench.one(3.0, counter(4_000_000));
    assert_eq!(bench.points(), [(1, 3.0)], "the next value contains the growth");
    bench.read(4.0, vec![]);
    assert_eq!((bench.points(), bench.zones.due()), (vec![], None));
    bench.one(5.0, counter(9_000_000));
    assert_eq!(bench.points(), [(5, 0.0)], "a meter that returns starts a new series");
}

#[test]
fn a_meter_that_changes_its_kind_starts_a_new_series() {
    let mut bench = Bench::new();
    bench.one(1.0, counter(1_000_000));
    bench.one(2.0, Ok(Quantity::Power(Watts::new(5))));
    assert_eq!(bench.points(), [(2, 0.0)]);
}

proptest! {
    /// A counter of any range, read in time, has the energy that was used.
    #[test]
    fn energy_is_complete_over_wraps(
        range in 2_000_000_000_u64..300_000_000_000,
        start in 0.0..1.0,
        steps in proptest::collection::vec(0.0..1.0, 1..60),
    ) {
        let mut bench = Bench::new();
        let reading = |energy: u64| Ok(Quantity::Energy(Microjoules(energy % range), Some(Microjoules(range))));
        let mut energy = (start * range as f64) as u64;
        let first = energy;
        bench.one(0.0, reading(energy));
        let mut second = 0.0;
        for share in steps {
            // 2 kW at most, and a reading at the latest when it is due.
            let period = bench.zones.due().unwrap() - bench.zones.read.unwrap();
            second += period.as_secs_f64();
            energy += (period.as_secs_f64() * 1.99e9 * share) as u64;
            bench.one(second, reading(energy));
        }
        prop_assert_eq!(bench.grown(), Some(energy - first));
    }
}
