//! The clocks: monotonic for durations within the kernel, the wall clock for comparison with packet timestamps.

use aya_ebpf::helpers::bpf_ktime_get_ns;

use super::variable;

/// Wall clock minus monotonic clock in nanoseconds, modulo 2^64. It changes when the wall clock is set; user space then
/// updates it. (`bpf_ktime_get_tai_ns` follows these changes but takes 7 ns longer.)
#[unsafe(export_name = "clock.offset")]
#[unsafe(link_section = ".data.clock")]
static OFFSET: u64 = 0;

/// Returns nanoseconds of the monotonic clock.
///
/// Hooks call it before any other memory access: reading the counter waits for earlier loads and overlaps with later ones.
#[inline(always)]
pub fn monotonic() -> u64 {
    // SAFETY: the helper has no arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Converts nanoseconds of the monotonic clock to nanoseconds of the wall clock.
#[inline(always)]
pub fn wall(monotonic: u64) -> u64 {
    monotonic.wrapping_add(variable(&OFFSET))
}
