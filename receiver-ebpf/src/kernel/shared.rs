//! Words that several CPUs write.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds to a word atomically.
#[inline(always)]
pub fn add(word: *mut u64, amount: u64) {
    // BPF has no compare-and-swap before 5.12, so Rust's atomic types have no methods on this target.
    // SAFETY: a word of a map, which lives as long as the program.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, amount) };
}
