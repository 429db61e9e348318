//! The geometry of the base-2 exponential histograms.
//!
//! Boundaries are `2^(k / 2^scale)` seconds, as the OpenTelemetry metrics data model defines them. Upper bounds are
//! inclusive. In integer nanoseconds a boundary is `T(k) = floor(10^9 * 2^(k / 2^scale))`.
//!
//! Bucket 0 is the zero bucket, for durations up to `T` of the lowest boundary. The following buckets are between the
//! boundaries, and the last one is for longer durations.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// log2 of the lowest boundary in seconds: 2^-24 s is 59.6 ns.
pub const MIN_EXPONENT: i32 = -24;
/// log2 of the highest boundary in seconds: 16 s.
pub const MAX_EXPONENT: i32 = 4;
/// The finest scale: eight buckets an octave.
pub const MAX_SCALE: u8 = 3;

/// Returns the number of buckets at a scale: the zero bucket, the octaves, and one bucket for longer durations.
#[must_use]
pub const fn buckets(scale: u8) -> usize {
    (((MAX_EXPONENT - MIN_EXPONENT) as usize) << scale) + 2
}

/// Buckets of a cell: one for each value of a guess, which is one byte, and one for the correction.
pub const BUCKETS: usize = 257;
/// Entries of the threshold table. Entry `i` is the inclusive upper bound of bucket `i` in nanoseconds, below 2^63.
pub const THRESHOLDS: usize = 256;

/// Entries of a span. The guess table has four spans of seven octaves. The entry of a duration below
/// `1 << SPAN_LIMIT_BITS[i]` is at `(duration >> SPAN_SHIFTS[i]) + i * SPAN_ENTRIES`. From the sixteenth entry of a span on, an
/// entry is narrower than a bucket of the finest scale, so it contains at most one boundary.
pub const SPAN_ENTRIES: usize = 2048;
/// Number of spans.
pub const SPANS: usize = 4;
/// log2 of the first duration after each span, in nanoseconds.
pub const SPAN_LIMIT_BITS: [u32; SPANS] = [13, 20, 27, 34];
/// Right shift of a duration for the index of its entry, in each span.
pub const SPAN_SHIFTS: [u32; SPANS] = [2, 9, 16, 23];
/// Entries of the guess table.
pub const GUESSES: usize = SPANS * SPAN_ENTRIES;

/// A histogram of one writer on one CPU. Its count is the sum of its buckets.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HistogramCell {
    /// Sum of the durations, in nanoseconds.
    pub sum: u64,
    /// Number of durations, by bucket.
    pub buckets: [u64; BUCKETS],
}

const _: () = {
    assert!(buckets(MAX_SCALE) <= THRESHOLDS);
    assert!(size_of::<HistogramCell>() == 8 * (1 + BUCKETS));
    assert!(offset_of!(HistogramCell, buckets) == 8);
};
