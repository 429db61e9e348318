//! Histogram cells: exact bucket indices and plain additions.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, maps::Array};
use undercurrent_ebpf::abi::{
    by_cpu::Entry,
    histogram::{GUESSES, HistogramCell, SPAN_ENTRIES, SPAN_LIMIT_BITS, SPAN_SHIFTS, SPANS, THRESHOLDS},
};

use super::workarounds::checked_copy;

/// The bucket of the shortest duration of each entry. The loader sets the table for the configured scale.
#[unsafe(export_name = "histogram.guesses")]
#[unsafe(link_section = ".rodata.scale")]
static GUESS: [u8; GUESSES] = [0; GUESSES];

/// The inclusive upper bound of each bucket in nanoseconds. The loader sets the table for the configured scale.
#[unsafe(export_name = "histogram.bounds")]
#[unsafe(link_section = ".rodata.scale")]
static BOUND: [u64; THRESHOLDS] = [0; THRESHOLDS];

/// The first duration in nanoseconds beyond all buckets.
pub const BEYOND: u64 = 1 << SPAN_LIMIT_BITS[SPANS - 1];

/// A map that user space reads through `mmap`, with one entry per possible CPU; the loader sets the number. It is no
/// per-CPU array because every kernel inlines lookups in a plain array.
pub type ByCpu<T> = Array<Entry<T>>;

/// `BPF_F_MMAPABLE` of `include/uapi/linux/bpf.h`.
pub const MMAPABLE: u32 = 1 << 10;

/// Returns the entry of the current CPU.
#[inline(always)]
pub fn here<T>(map: &ByCpu<T>) -> Option<&'static mut T> {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the entry lives as long as the program. Each word has one program as its writer, which the kernel does not run within its own
    // run (5.12 and later, raw tracepoints from 6.1 on), or is added to atomically. Earlier kernels may lose an addition.
    map.get_ptr_mut(cpu).map(|entry| unsafe { &mut (*entry).0 })
}

/// A duration in nanoseconds that no bucket covers.
pub struct Beyond(pub u64);

/// Returns the byte offset of a duration's bound, exact or one bucket too low.
#[inline(always)]
fn guess(nanoseconds: u64) -> Result<usize, Beyond> {
    let nanoseconds = checked_copy(nanoseconds);
    let entry = |span: usize| (nanoseconds >> SPAN_SHIFTS[span]) as usize + span * SPAN_ENTRIES;
    // Common durations, below a millisecond, take two comparisons.
    let index = if nanoseconds < 1 << SPAN_LIMIT_BITS[1] {
        if nanoseconds < 1 << SPAN_LIMIT_BITS[0] { entry(0) } else { entry(1) }
    } else if nanoseconds < 1 << SPAN_LIMIT_BITS[2] {
        entry(2)
    } else if nanoseconds < BEYOND {
        entry(3)
    } else {
        return Err(Beyond(nanoseconds));
    };
    // SAFETY: each branch compared the duration with the limit of its span, which bounds the index. Volatile, since the
    // loader sets the table.
    let bucket = unsafe { (&raw const GUESS).cast::<u8>().add(index).read_volatile() };
    Ok(usize::from(bucket) * size_of::<u64>())
}

/// Returns the byte offset of a duration's bucket, exactly.
#[inline(always)]
pub fn bucket(nanoseconds: u64) -> Result<usize, Beyond> {
    let offset = guess(nanoseconds)?;
    // SAFETY: a guess is one byte, and the table has an entry for each value of a byte.
    let bound = unsafe { (&raw const BOUND).byte_add(offset).cast::<u64>().read_volatile() };
    // Adds eight bytes if the duration exceeds the bound, from the sign bit of the difference. A branch would be
    // unpredictable: durations fall on both sides of a bound at random.
    let correction = (bound.wrapping_sub(nanoseconds) >> 60) & 8;
    Ok(offset + correction as usize)
}

/// Adds a duration to a histogram `weight` times. A histogram is a sequence of words: its sum, then its buckets. `add` adds a number to
/// the word at a byte offset.
#[inline(always)]
pub fn record_words(nanoseconds: u64, weight: u64, mut add: impl FnMut(usize, u64)) -> Result<(), Beyond> {
    let offset = bucket(nanoseconds)?;
    add(0, nanoseconds * weight);
    add(size_of::<u64>() + offset, weight);
    Ok(())
}

/// Adds a duration to the histogram of a cell `weight` times.
#[inline(always)]
pub fn record(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) -> Result<(), Beyond> {
    let words = (&raw mut *cell).cast::<u64>();
    // SAFETY: the cell has the words of a histogram, and one more bucket than a byte can number, for the correction.
    record_words(nanoseconds, weight, |offset, amount| unsafe { *words.byte_add(offset) += amount })
}

/// Adds a duration of any length to a histogram; a duration beyond all buckets counts as the longest duration.
#[inline(always)]
pub fn record_any(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) {
    if record(cell, nanoseconds, weight).is_err() {
        let _ = record(cell, BEYOND - 1, weight);
    }
}
