//! Recording into cells: exact bucket indices and plain adds.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, maps::Array};
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

/// A map that user space reads by `mmap`, with one entry for each possible CPU (the loader sets how many). An array by
/// CPU and not a per-CPU array: every kernel inlines its look-up.
pub type ByCpu<T> = Array<T>;

/// The flag that lets user space map an array (`include/uapi/linux/bpf.h`).
pub const MMAPABLE: u32 = 1 << 10;

/// This CPU's entry.
#[inline(always)]
pub fn here<T>(map: &ByCpu<T>) -> Option<&'static mut T> {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the entry lives as long as the program; each of its words has one writer, which does not run inside itself.
    map.get_ptr_mut(cpu).map(|entry| unsafe { &mut *entry })
}

/// A duration that no bucket covers.
pub struct Beyond(pub u64);

/// Where a duration's bound and count are found, as byte offsets: eight times a slot that is exact or one too low.
#[inline(always)]
fn guess(nanoseconds: u64) -> Result<usize, Beyond> {
    let entry = |span: usize| (nanoseconds >> SPAN_SHIFTS[span]) as usize + span * SPAN_ENTRIES;
    // The common durations, below a millisecond, take two comparisons.
    let index = if nanoseconds < 1 << SPAN_LIMIT_BITS[1] {
        if nanoseconds < 1 << SPAN_LIMIT_BITS[0] { entry(0) } else { entry(1) }
    } else if nanoseconds < 1 << SPAN_LIMIT_BITS[2] {
        entry(2)
    } else if nanoseconds < BEYOND {
        entry(3)
    } else {
        return Err(Beyond(nanoseconds));
    };
    // SAFETY: `index` was compared with its span's limit, which the verifier checks again; volatile because the loader
    // set the table behind the compiler's back.
    let slot = unsafe { core::ptr::read_volatile((&raw const GUESS).cast::<u8>().add(index)) };
    Ok(usize::from(slot) * size_of::<u64>())
}

/// A duration's slot, exact, as a byte offset.
#[inline(always)]
pub fn slot(nanoseconds: u64) -> Result<usize, Beyond> {
    let offset = guess(nanoseconds)?;
    // SAFETY: a guess is one byte, and the table is longer than a byte can name.
    let bound = unsafe { core::ptr::read_volatile((&raw const BOUND).byte_add(offset).cast::<u64>()) };
    // One slot further where the duration exceeds the bound: the difference's sign bit, shifted to eight bytes. No branch,
    // since no predictor knows on which side of a bound the next packet falls.
    let correction = (bound.wrapping_sub(nanoseconds) >> 60) & 8;
    Ok(offset + correction as usize)
}

/// Adds a duration to a histogram, as often as its weight says.
#[inline(always)]
pub fn record(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) -> Result<(), Beyond> {
    let offset = slot(nanoseconds)?;
    let slots = (&raw mut cell.slots).cast::<u64>();
    // SAFETY: there is one slot more than a byte can name, for the correction.
    unsafe { *slots.byte_add(offset) += weight };
    cell.sum += nanoseconds * weight;
    Ok(())
}

/// Adds a duration of any length to a histogram; what no bucket covers counts as the longest that one does.
#[inline(always)]
pub fn record_any(cell: &mut HistogramCell, nanoseconds: u64, weight: u64) {
    if record(cell, nanoseconds, weight).is_err() {
        let _ = record(cell, BEYOND - 1, weight);
    }
}
