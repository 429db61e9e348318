//! Recording into cells: exact bucket indices and plain adds.

use aya_ebpf::maps::PerCpuArray;
use undercurrent_ebpf::abi::histogram::{
    GUESSES, HistogramCell, SPAN_ENTRIES, SPAN_LIMIT_BITS, SPAN_SHIFTS, SPANS, THRESHOLDS,
};

/// The slot of the shortest duration of each guess entry, set by the loader for the configured scale.
#[unsafe(export_name = "histogram.guesses")]
#[unsafe(link_section = ".rodata.scale")]
static GUESS: [u8; GUESSES] = [0; GUESSES];

/// The inclusive upper bound of each slot in nanoseconds, set by the loader for the configured scale.
#[unsafe(export_name = "histogram.bounds")]
#[unsafe(link_section = ".rodata.scale")]
static BOUND: [u64; THRESHOLDS] = [0; THRESHOLDS];

/// Durations from here on are in no span: too long for any bucket, or no duration at all.
pub const BEYOND: u64 = 1 << SPAN_LIMIT_BITS[SPANS - 1];

#[inline(always)]
fn guess(span: usize, nanoseconds: u64) -> u8 {
    let index = (nanoseconds >> SPAN_SHIFTS[span]) as usize + span * SPAN_ENTRIES;
    // SAFETY: the caller compared with the span's limit, which the verifier checks again; volatile because the loader
    // set the table behind the compiler's back.
    unsafe { core::ptr::read_volatile((&raw const GUESS).cast::<u8>().add(index)) }
}

/// The slot of a duration below [`BEYOND`], exact: a guess that is at most one too low, corrected by the bound.
#[inline(always)]
pub fn slot(nanoseconds: u64) -> usize {
    let guess = if nanoseconds < 1 << SPAN_LIMIT_BITS[1] {
        if nanoseconds < 1 << SPAN_LIMIT_BITS[0] { guess(0, nanoseconds) } else { guess(1, nanoseconds) }
    } else if nanoseconds < 1 << SPAN_LIMIT_BITS[2] {
        guess(2, nanoseconds)
    } else {
        guess(3, nanoseconds)
    };
    // SAFETY: a byte cannot exceed the table.
    let bound = unsafe { core::ptr::read_volatile((&raw const BOUND).cast::<u64>().add(guess as usize)) };
    guess as usize + usize::from(nanoseconds > bound)
}

/// Adds one duration below [`BEYOND`] to a histogram of this CPU.
#[inline(always)]
pub fn record(histograms: &PerCpuArray<HistogramCell>, cell: u32, nanoseconds: u64) {
    let slot = slot(nanoseconds);
    let Some(cell) = histograms.get_ptr_mut(cell) else { return };
    // SAFETY: the pointer is this CPU's value, and its only writer is this program, which does not run inside itself.
    unsafe {
        (*cell).slots[slot] += 1;
        (*cell).sum += nanoseconds;
    }
}

/// Adds one to a counter of this CPU.
#[inline(always)]
pub fn count(counters: &PerCpuArray<u64>, index: u32) {
    if let Some(counter) = counters.get_ptr_mut(index) {
        // SAFETY: as for `record`.
        unsafe { *counter += 1 };
    }
}
