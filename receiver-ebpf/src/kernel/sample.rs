//! Which packets are measured: all, or one in a power of two, chosen by their stamps, so that every layer measures the same.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use undercurrent_ebpf::abi::latency::waiting::{mix, mix_twice};

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

/// How often a CPU has chosen by chance, in multiples of the golden ratio.
#[map]
static CHANCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Whether a packet without a stamp is measured, by chance: by the next of a sequence whose members are mixed (Steele, Lea, Flood:
/// Fast splittable pseudorandom number generators, OOPSLA 2014). The helper for random numbers takes nearly as long as the clock.
#[inline(always)]
pub fn chosen() -> bool {
    let mask = set_outside(&MASK);
    if mask == 0 {
        return true;
    }
    let Some(chance) = CHANCE.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's entry, which lives as long as the program; one that another program took too does no harm.
    let next = unsafe { (*chance).wrapping_add(mix(1)) };
    // SAFETY: as above.
    unsafe { *chance = next };
    mix_twice(next) >> 32 & mask == 0
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
    if mix_twice(stamp) >> 32 & mask == 0 { Some(mask + 1) } else { None }
}
