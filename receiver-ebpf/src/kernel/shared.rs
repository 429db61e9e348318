//! Words that several CPUs write.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds to a word that other CPUs add to as well.
#[inline(always)]
pub fn add(word: *mut u64, amount: u64) {
    // The target has no compare-and-swap before 5.12, and so Rust offers none of its atomic types' methods.
    // SAFETY: a word of a map, which lives as long as the program.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, amount) };
}
