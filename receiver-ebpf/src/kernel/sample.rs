//! Which packets are measured: all, or one in a power of two, chosen by their stamps, so that every layer measures the same.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use undercurrent_ebpf::abi::latency::waiting::mix;

use super::{clock, set_outside};

/// One less than how many packets stand for one that is measured; that number is a power of two. User space sets it.
#[unsafe(export_name = "sample.mask")]
#[unsafe(link_section = ".data.sample")]
static MASK: u64 = 0;

/// The monotonic clock where every packet is measured, else nothing: what is left out takes no clock.
#[inline(always)]
pub fn early() -> u64 {
    if set_outside(&MASK) == 0 { clock::monotonic() } else { 0 }
}

/// Whether a packet without a stamp is measured, by chance.
#[inline(always)]
pub fn chosen() -> bool {
    let mask = set_outside(&MASK);
    // SAFETY: a helper without arguments.
    mask == 0 || u64::from(unsafe { bpf_get_prandom_u32() }) & mask == 0
}

/// How many packets one that is measured stands for.
#[inline(always)]
pub fn share() -> u64 {
    set_outside(&MASK) + 1
}

/// How many packets one with this stamp stands for; `None` where it is left out.
#[inline(always)]
pub fn weight(stamp: u64) -> Option<u64> {
    let mask = set_outside(&MASK);
    // Twice, since the stamps of packets that come at even distances stay at even distances when they are mixed once.
    let once = mix(stamp);
    if mix(once ^ once >> 32) >> 32 & mask == 0 { Some(mask + 1) } else { None }
}
