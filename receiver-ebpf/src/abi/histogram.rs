//! The geometry of the base-2 exponential histograms, in slots.
//!
//! Boundaries are `2^(k / 2^scale)` seconds as the OpenTelemetry metrics data model defines them (upper bounds
//! inclusive), brought to integer nanoseconds by `T(k) = floor(10^9 * 2^(k / 2^scale))`. Slot 0 is the zero bucket
//! (durations up to `T` of the lowest boundary), the slots after it follow the boundaries, and the slot after the last
//! boundary holds everything longer.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// log2 of the lowest boundary in seconds: 2^-24 s is 59.6 ns.
pub const MIN_EXPONENT: i32 = -24;
/// log2 of the highest boundary in seconds: 16 s.
pub const MAX_EXPONENT: i32 = 4;
/// The finest scale: eight buckets an octave.
pub const MAX_SCALE: u8 = 3;

/// Slots in use at a scale: one for zero, one for what is above, and the octaves between.
#[must_use]
pub const fn slots(scale: u8) -> usize {
    (((MAX_EXPONENT - MIN_EXPONENT) as usize) << scale) + 2
}

/// Slots that a guess, which is one byte, can name; the correction may add one.
pub const SLOTS: usize = 257;
/// Thresholds that a guess can name. Entry `i` is the inclusive upper bound of slot `i` in nanoseconds, below 2^63.
pub const THRESHOLDS: usize = 256;

/// The guess table has four spans of seven octaves, 2048 entries each: a duration below `1 << SPAN_LIMIT_BITS[i]` has its
/// entry at `(duration >> SPAN_SHIFTS[i]) + i * SPAN_ENTRIES`. From the sixteenth entry of a span on, an entry is
/// narrower than a bucket of the finest scale, so that at most one boundary falls inside it.
pub const SPAN_ENTRIES: usize = 2048;
/// Number of spans.
pub const SPANS: usize = 4;
/// log2 of the first duration beyond each span, in nanoseconds.
pub const SPAN_LIMIT_BITS: [u32; SPANS] = [13, 20, 27, 34];
/// How far a duration is shifted to find its entry within each span.
pub const SPAN_SHIFTS: [u32; SPANS] = [2, 9, 16, 23];
/// Entries of the guess table.
pub const GUESSES: usize = SPANS * SPAN_ENTRIES;

/// One histogram of one writer on one CPU. Its count is the sum of its slots: no count word stands beside them.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HistogramCell {
    /// Sum of everything recorded, in nanoseconds.
    pub sum: u64,
    /// Recorded durations by slot.
    pub slots: [u64; SLOTS],
}

const _: () = {
    assert!(slots(MAX_SCALE) <= THRESHOLDS);
    assert!(size_of::<HistogramCell>() == 8 * (1 + SLOTS));
    assert!(offset_of!(HistogramCell, slots) == 8);
};
