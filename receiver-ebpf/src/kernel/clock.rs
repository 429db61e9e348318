//! The clocks: monotonic for durations within the kernel, the wall clock for what is compared with a packet's stamp.

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_ktime_get_tai_ns};

/// Whether this kernel has `bpf_ktime_get_tai_ns` (6.1 and later).
#[unsafe(export_name = "clock.tai")]
#[unsafe(link_section = ".rodata.flags")]
static HAS_TAI: u32 = 0;

/// What to add to the base clock to get the wall clock, in nanoseconds, modulo 2^64. The base clock is TAI where there
/// is one, whose difference from the wall clock only leap seconds change; else it is the monotonic clock, and user
/// space follows every step.
#[unsafe(export_name = "clock.offset")]
#[unsafe(link_section = ".data.clock")]
static OFFSET: u64 = 0;

/// Nanoseconds of the monotonic clock.
#[inline(always)]
pub fn monotonic() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Nanoseconds of the wall clock.
///
/// Hooks read it first of all: reading the counter waits for whatever was begun before it, and what comes after overlaps.
#[inline(always)]
pub fn wall() -> u64 {
    // SAFETY: reads of live statics; volatile because user space sets them.
    let (has_tai, offset) =
        unsafe { (core::ptr::read_volatile(&raw const HAS_TAI), core::ptr::read_volatile(&raw const OFFSET)) };
    // SAFETY: a helper without arguments; the verifier drops the branch that the frozen flag excludes.
    let base = if has_tai != 0 { unsafe { bpf_ktime_get_tai_ns() } } else { monotonic() };
    base.wrapping_add(offset)
}
