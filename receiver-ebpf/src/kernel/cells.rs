//! Histogram cells: exact bucket indices and plain additions.

use core::arch::asm;

use aya_ebpf::{helpers::bpf_get_smp_processor_id, maps::Array};
use undercurrent_ebpf::abi::histogram::{
    GUESSES, HistogramCell, SPAN_ENTRIES, SPAN_LIMIT_BITS, SPAN_SHIFTS, SPANS, THRESHOLDS,
};

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
pub type ByCpu<T> = Array<T>;

/// `BPF_F_MMAPABLE` of `include/uapi/linux/bpf.h`.
pub const MMAPABLE: u32 = 1 << 10;

/// Returns the entry of the current CPU.
#[inline(always)]
pub fn here<T>(map: &ByCpu<T>) -> Option<&'static mut T> {
    // SAFETY: the helper has no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the entry lives as long as the program. Each word has one writer, which does not interrupt its own run.
    map.get_ptr_mut(cpu).map(|entry| unsafe { &mut *entry })
}

/// A duration in nanoseconds that no bucket covers.
pub struct Beyond(pub u64);

/// Returns a number in a register of its own. The compiler knows nothing of its value, so it keeps a check of its bounds.
///
/// The verifiers of 5.10 and 6.1 do not apply the check of a register to its copy on the stack. A copy that is used shortly after its check
/// stays in its register.
#[inline(always)]
pub fn checked_copy(number: u64) -> u64 {
    let copy: u64;
    // SAFETY: a copy of a register.
    unsafe { asm!("{} = {}", out(reg) copy, in(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    copy
}

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

/// Adds a duration to a histogram `weight` times.
#[inline(always)]
pub fn record(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) -> Result<(), Beyond> {
    let offset = bucket(nanoseconds)?;
    let buckets = (&raw mut cell.buckets).cast::<u64>();
    // SAFETY: there is one more bucket than a byte can number, for the correction.
    unsafe { *buckets.byte_add(offset) += weight };
    cell.sum += nanoseconds * weight;
    Ok(())
}

/// Adds a duration of any length to a histogram; a duration beyond all buckets counts as the longest duration.
#[inline(always)]
pub fn record_any(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) {
    if record(cell, nanoseconds, weight).is_err() {
        let _ = record(cell, BEYOND - 1, weight);
    }
}
