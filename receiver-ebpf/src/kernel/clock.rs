//! The clocks: monotonic for durations within the kernel, the wall clock for what is compared with a packet's stamp.

use aya_ebpf::helpers::bpf_ktime_get_ns;

use super::set_outside;

/// What to add to the monotonic clock to get the wall clock, in nanoseconds, modulo 2^64. It changes only when the wall
/// clock is set, and user space follows that. (`bpf_ktime_get_tai_ns`, which steps by itself, takes 7 ns longer.)
#[unsafe(export_name = "clock.offset")]
#[unsafe(link_section = ".data.clock")]
static OFFSET: u64 = 0;

/// Nanoseconds of the monotonic clock.
///
/// Hooks read it first of all: reading the counter waits for whatever was begun before it, and what comes after overlaps.
#[inline(always)]
pub fn monotonic() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Nanoseconds of the wall clock at a time of the monotonic one.
#[inline(always)]
pub fn wall(monotonic: u64) -> u64 {
    monotonic.wrapping_add(set_outside(&OFFSET))
}
