//! Bucket boundaries, exact to the nanosecond, and the tables that eBPF programs use to find the bucket of a duration.

use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::histogram::{
    GUESSES, MAX_EXPONENT, MAX_SCALE, MIN_EXPONENT, SPAN_ENTRIES, SPAN_SHIFTS, SPANS, THRESHOLDS, buckets,
};

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

/// A scale of the OpenTelemetry data model, 0 to 3. The upper bound of a bucket is `2^(2^-scale)` times its lower
/// bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale(u8);

impl Scale {
    /// Four buckets for each factor of two.
    pub const DEFAULT: Self = Self(2);

    /// Returns a scale, or `None` outside of 0 to 3.
    #[must_use]
    pub const fn new(scale: u8) -> Option<Self> {
        if scale <= MAX_SCALE { Some(Self(scale)) } else { None }
    }

    /// Returns the scale as a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of buckets in use, including the zero bucket and the topmost bucket.
    #[must_use]
    pub const fn buckets(self) -> usize {
        buckets(self.0)
    }

    /// Returns `floor(10^9 * 2^(index / 2^scale))`: the boundary of an index in whole nanoseconds.
    ///
    /// With `n = 2^scale`, the boundary is the integer n-th root of `10^(9 n) * 2^index`. The inner floor for a
    /// negative index changes nothing: an integer root is at most x if and only if it is at most floor(x).
    #[must_use]
    pub fn boundary(self, index: i32) -> u64 {
        let root = 1_u32 << self.0;
        let power = BigUint::from(NANOSECONDS_PER_SECOND).pow(root);
        let scaled = if index < 0 { power >> index.unsigned_abs() } else { power << index.unsigned_abs() };
        scaled.nth_root(root).try_into().unwrap_or(u64::MAX)
    }

    /// Returns the OpenTelemetry index of bucket 1, the first bucket after the zero bucket.
    #[must_use]
    pub const fn first_index(self) -> i32 {
        MIN_EXPONENT << self.0
    }

    /// Returns the inclusive upper bound of every bucket in nanoseconds: a table of the eBPF programs.
    #[must_use]
    pub fn bounds(self) -> [u64; THRESHOLDS] {
        let mut bounds = [i64::MAX as u64; THRESHOLDS];
        let last = MAX_EXPONENT << self.0;
        for (bound, index) in bounds.iter_mut().zip(self.first_index()..=last) {
            *bound = self.boundary(index);
        }
        bounds
    }

    /// Returns the bucket of the shortest duration of every table entry: a table of the eBPF programs.
    #[must_use]
    pub fn guesses(self) -> [u8; GUESSES] {
        let bounds = self.bounds();
        let mut guesses = [0; GUESSES];
        for span in 0..SPANS {
            for entry in 0..SPAN_ENTRIES {
                let shortest = (entry as u64) << SPAN_SHIFTS[span];
                let slot = bounds.partition_point(|bound| *bound < shortest);
                guesses[span * SPAN_ENTRIES + entry] = u8::try_from(slot).unwrap_or(u8::MAX);
            }
        }
        guesses
    }
}

#[cfg(test)]
mod tests {
    use undercurrent_ebpf::abi::histogram::SPAN_LIMIT_BITS;

    use super::*;

    fn scales() -> impl Iterator<Item = Scale> {
        (0..=MAX_SCALE).filter_map(Scale::new)
    }

    /// Finds the bucket as the eBPF programs do: a table lookup, corrected by one comparison.
    fn slot(scale: Scale, nanoseconds: u64) -> usize {
        let (guesses, bounds) = (scale.guesses(), scale.bounds());
        let span = SPAN_LIMIT_BITS.iter().position(|bits| nanoseconds < 1 << bits).expect("within the spans");
        let guess = guesses[span * SPAN_ENTRIES + (nanoseconds >> SPAN_SHIFTS[span]) as usize];
        usize::from(guess) + usize::from(bounds[usize::from(guess)].wrapping_sub(nanoseconds) >> 63 == 1)
    }

    #[test]
    fn boundaries_are_the_largest_integers_below_the_real_ones() {
        for scale in scales() {
            let root = 1 << scale.get();
            for index in scale.first_index()..=MAX_EXPONENT << scale.get() {
                // boundary^n <= 10^(9n) * 2^index < (boundary + 1)^n. The power of two moves to the side where it is an
                // integer.
                let power = |number: u64| BigUint::from(number).pow(root) << u32::try_from(-index).unwrap_or(0);
                let real = BigUint::from(NANOSECONDS_PER_SECOND).pow(root) << u32::try_from(index).unwrap_or(0);
                let boundary = scale.boundary(index);
                assert!(power(boundary) <= real && real < power(boundary + 1), "scale {scale:?}, index {index}");
            }
        }
    }

    #[test]
    fn whole_seconds_are_boundaries() {
        for scale in scales() {
            assert_eq!(scale.boundary(0), 1_000_000_000);
            assert_eq!(scale.boundary(4 << scale.get()), 16_000_000_000);
            assert_eq!(scale.boundary(-1 << scale.get()), 500_000_000);
        }
    }

    #[test]
    fn every_boundary_and_its_neighbours_fall_into_their_slots() {
        for scale in scales() {
            let bounds = scale.bounds();
            for (index, bound) in bounds[..scale.buckets() - 1].iter().enumerate() {
                assert_eq!(slot(scale, *bound), index, "upper bounds are inclusive: scale {scale:?}, {bound} ns");
                assert_eq!(slot(scale, bound + 1), index + 1, "scale {scale:?}, {bound} ns and one");
            }
            assert_eq!(slot(scale, 0), 0);
            assert_eq!(slot(scale, (1 << SPAN_LIMIT_BITS[SPANS - 1]) - 1), scale.buckets() - 1);
        }
    }

    #[test]
    fn a_guess_is_exact_or_one_too_low() {
        for scale in scales() {
            let (guesses, bounds) = (scale.guesses(), scale.bounds());
            for (entry, guess) in guesses.iter().enumerate() {
                let (span, entry) = (entry / SPAN_ENTRIES, (entry % SPAN_ENTRIES) as u64);
                let longest = ((entry + 1) << SPAN_SHIFTS[span]) - 1;
                // The first entries of a span belong to the previous span, and are never read.
                if span > 0 && longest < 1 << SPAN_LIMIT_BITS[span - 1] {
                    continue;
                }
                let slot = bounds.partition_point(|bound| *bound < longest);
                assert!(slot - usize::from(*guess) <= 1, "scale {scale:?}, span {span}, entry {entry}");
            }
        }
    }
}
