//! Histogram boundaries, exact to the nanosecond: the kernel runs the product's own code on chosen durations, and the data
//! model's definition says by whole numbers of any length where they belong.

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

/// The boundaries of a scale, `10^9 * 2^(k / n)` nanoseconds with `n = 2^scale`, lowest first. Each is raised to the n-th
/// power and multiplied by one power of two for all, which makes it whole.
struct Boundaries {
    root: u32,
    raised: Vec<BigUint>,
}

impl Boundaries {
    fn of(scale: Scale) -> Self {
        let root = 1 << scale.get();
        let second = BigUint::from(10_u32).pow(9 * root);
        // The lowest boundary is `second` itself: the multiplication of the others takes its negative exponent away.
        let raised = (0..=MAX_EXPONENT.abs_diff(MIN_EXPONENT) * root).map(|step| &second << step).collect();
        Self { root, raised }
    }

    /// A whole duration, to be compared with boundaries.
    fn raise(&self, nanoseconds: u64) -> BigUint {
        BigUint::from(nanoseconds).pow(self.root) << (MIN_EXPONENT.unsigned_abs() * self.root)
    }

    /// The longest whole duration that does not exceed a boundary, found bit by bit.
    fn longest_within(&self, boundary: &BigUint) -> u64 {
        (0..u64::BITS).rev().fold(0, |found, bit| {
            let longer = found | 1 << bit;
            if self.raise(longer) <= *boundary { longer } else { found }
        })
    }

    /// The slot of a duration that some slot covers: as many as there are boundaries that it exceeds.
    fn slot(&self, nanoseconds: u64) -> usize {
        let raised = self.raise(nanoseconds);
        self.raised.partition_point(|boundary| *boundary < raised)
    }
}

/// A scale's programs in the kernel, and its boundaries.
fn scales() -> impl Iterator<Item = (Cells, Boundaries)> {
    let scales = (0..=MAX_SCALE).map(|scale| Scale::new(scale).unwrap());
    scales.map(|scale| (Cells::load(scale), Boundaries::of(scale)))
}

/// Asks the kernel for the slot of a duration, and has it recorded.
fn assert_slot(cells: &Cells, nanoseconds: u64, slot: usize) {
    let once = Added { sum: nanoseconds, slots: vec![(slot, 1)] };
    assert_eq!(cells.slot(nanoseconds), (slot * size_of::<u64>()) as u64, "{nanoseconds} ns belong to slot {slot}");
    assert_eq!(cells.record(nanoseconds), once, "{nanoseconds} ns");
    assert_eq!(cells.record_any(nanoseconds), once, "{nanoseconds} ns");
}

/// The same for a duration of any length.
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

/// The spans of the guess table begin and end at powers of two, the longest durations among them.
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
    // Few are beyond.
    let durations = (any::<u64>(), 24..u64::BITS).prop_map(|(bits, shift)| bits >> shift);
    for (cells, boundaries) in scales() {
        proptest!(ProptestConfig::with_cases(1000), |(nanoseconds in &durations)| {
            assert_exact(&cells, &boundaries, nanoseconds);
        });
    }
}
