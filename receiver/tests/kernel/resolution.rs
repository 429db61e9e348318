//! Tests that histogram boundaries are exact to the nanosecond. The kernel runs the sidecar's code on chosen
//! durations, and the expected buckets follow from the data model's definition in integers of arbitrary precision.

use num_bigint::BigUint;
use proptest::prelude::*;
use undercurrent::telemetry::Scale;
use undercurrent_ebpf::abi::histogram::{MAX_EXPONENT, MAX_SCALE, MIN_EXPONENT, SPAN_LIMIT_BITS, SPANS};

use super::support::{
    cells::{Added, Cells},
    surroundings::alone,
};

/// The first duration that no bucket covers.
const BEYOND: u64 = 1 << SPAN_LIMIT_BITS[SPANS - 1];

/// The boundaries of a scale, `10^9 * 2^(k / n)` nanoseconds with `n = 2^scale`, lowest first. Each is raised to
/// the n-th power and multiplied by a common power of two, which makes it an integer.
struct Boundaries {
    root: u32,
    raised: Vec<BigUint>,
}

impl Boundaries {
    fn new(scale: Scale) -> Self {
        let root = 1 << scale.get();
        let second = BigUint::from(10_u32).pow(9 * root);
        // The lowest boundary is `second`: multiplying the others removes its negative exponent.
        let raised = (0..=MAX_EXPONENT.abs_diff(MIN_EXPONENT) * root).map(|step| &second << step).collect();
        Self { root, raised }
    }

    /// Raises an integer duration for the comparison with boundaries.
    fn raise(&self, nanoseconds: u64) -> BigUint {
        BigUint::from(nanoseconds).pow(self.root) << (MIN_EXPONENT.unsigned_abs() * self.root)
    }

    /// Returns the longest integer duration that does not exceed a boundary, by bisection of its bits.
    fn longest_within(&self, boundary: &BigUint) -> u64 {
        (0..u64::BITS).rev().fold(0, |found, bit| {
            let longer = found | 1 << bit;
            if self.raise(longer) <= *boundary { longer } else { found }
        })
    }

    /// Returns the bucket of a duration within the covered range: the number of boundaries below it.
    fn slot(&self, nanoseconds: u64) -> usize {
        let raised = self.raise(nanoseconds);
        self.raised.partition_point(|boundary| *boundary < raised)
    }
}

/// Returns the programs of each scale in the kernel, with the boundaries.
fn scales() -> impl Iterator<Item = (Cells, Boundaries)> {
    let scales = (0..=MAX_SCALE).map(|scale| Scale::new(scale).unwrap());
    scales.map(|scale| (Cells::load(scale), Boundaries::new(scale)))
}

/// Asserts that the kernel finds this bucket for a duration and records into it.
fn assert_slot(cells: &Cells, nanoseconds: u64, slot: usize) {
    let once = Added { sum: nanoseconds, slots: vec![(slot, 1)] };
    assert_eq!(cells.slot(nanoseconds), (slot * size_of::<u64>()) as u64, "{nanoseconds} ns belong to slot {slot}");
    assert_eq!(cells.record(nanoseconds), once, "{nanoseconds} ns");
    assert_eq!(cells.record_any(nanoseconds), once, "{nanoseconds} ns");
}

/// Asserts the right bucket for a duration of any length.
fn assert_exact(cells: &Cells, boundaries: &Boundaries, nanoseconds: u64) {
    if nanoseconds < BEYOND {
        return assert_slot(cells, nanoseconds, boundaries.slot(nanoseconds));
    }
    let longest = Added { sum: BEYOND - 1, slots: vec![(boundaries.raised.len(), 1)] };
    assert_eq!(cells.slot(nanoseconds), nanoseconds, "{nanoseconds} ns are beyond");
    assert_eq!(cells.record(nanoseconds), Added { sum: 0, slots: Vec::new() }, "{nanoseconds} ns");
    assert_eq!(cells.record_any(nanoseconds), longest, "{nanoseconds} ns");
}

#[test]
fn every_boundary_is_exact_to_the_nanosecond_in_the_kernel() {
    let Some(_alone) = alone("boundaries in the kernel") else { return };
    for (cells, boundaries) in scales() {
        for (slot, boundary) in boundaries.raised.iter().enumerate() {
            let longest = boundaries.longest_within(boundary);
            assert_slot(&cells, longest - 1, slot);
            assert_slot(&cells, longest, slot);
            assert_slot(&cells, longest + 1, slot + 1);
        }
    }
}

/// The spans of the guess table begin and end at powers of two, and the longest durations are among them.
#[test]
fn powers_of_two_are_exact_to_the_nanosecond_in_the_kernel() {
    let Some(_alone) = alone("powers of two in the kernel") else { return };
    for (cells, boundaries) in scales() {
        let around = |power: u64| [power - 1, power, power + 1];
        for nanoseconds in (0..u64::BITS).flat_map(|bit| around(1 << bit)).chain([u64::MAX]) {
            assert_exact(&cells, &boundaries, nanoseconds);
        }
    }
}

#[test]
fn durations_of_every_magnitude_are_exact_in_the_kernel() {
    let Some(_alone) = alone("durations of every magnitude in the kernel") else { return };
    // Few durations exceed the range.
    let durations = (any::<u64>(), 24..u64::BITS).prop_map(|(bits, shift)| bits >> shift);
    for (cells, boundaries) in scales() {
        proptest!(ProptestConfig::with_cases(1000), |(nanoseconds in &durations)| {
            assert_exact(&cells, &boundaries, nanoseconds);
        });
    }
}
