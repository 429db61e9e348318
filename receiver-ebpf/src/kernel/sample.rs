//! Sampling: all packets are measured, or one in a power of two. The receive timestamp decides, so every layer measures equal
//! packets.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use undercurrent_ebpf::abi::waiting::{mix, mix_twice};

use super::{clock, variable};

/// The number of packets per measured packet, a power of two, minus one. User space sets it.
#[unsafe(export_name = "sample.mask")]
#[unsafe(link_section = ".data.sample")]
static MASK: u64 = 0;

/// Returns true if every packet is measured.
#[inline(always)]
pub fn takes_all() -> bool {
    variable(&MASK) == 0
}

/// Returns the monotonic clock if every packet is measured; else zero, since packets outside of the sample read no clock.
#[inline(always)]
pub fn early() -> u64 {
    if takes_all() { clock::monotonic() } else { 0 }
}

/// State of [`chosen`] on each CPU, in multiples of the golden ratio.
#[map]
static CHANCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The last number of [`next`] on each CPU.
#[map]
static NEXT: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Decides at random if a packet without a timestamp is measured.
///
/// The sequence is that of Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014. The kernel's
/// helper for random numbers takes nearly as long as the clock.
#[inline(always)]
pub fn chosen() -> bool {
    let mask = variable(&MASK);
    if mask == 0 {
        return true;
    }
    let Some(chance) = CHANCE.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's entry, which lives as long as the program. Two programs may read an equal value, which is harmless.
    let next = unsafe { (*chance).wrapping_add(mix(1)) };
    // SAFETY: this CPU's entry.
    unsafe { *chance = next };
    mix_twice(next) >> 32 & mask == 0
}

/// Returns the number of packets that a measured packet represents.
#[inline(always)]
pub fn share() -> u64 {
    variable(&MASK) + 1
}

/// Returns true if a wait that begins at this sequence number is measured.
#[inline(always)]
pub fn takes(sequence: u32) -> bool {
    let mask = variable(&MASK);
    mask == 0 || mix_twice(sequence.into()) >> 32 & mask == 0
}

/// Returns a number that no earlier call on this CPU returned.
#[inline(always)]
pub fn next() -> u64 {
    let Some(next) = NEXT.get_ptr_mut(0) else { return 0 };
    // SAFETY: this CPU's entry, which lives as long as the program. Two programs may get one number, which is harmless.
    unsafe {
        *next += 1;
        *next
    }
}

/// Decides if an event of a sequence is measured: one of each group of successive events, at a random place in the group. So the number of
/// measured events differs little from its expectation, and events that alternate are measured evenly. Successive sequences have different
/// places, so that sequences of one event, and sequences that advance together, are measured evenly too.
#[inline(always)]
pub fn takes_one_of_each(sequence: u32, event: u32) -> bool {
    let mask = variable(&MASK) as u32;
    let group = u64::from(sequence & !mask) << 32 | u64::from(event & !mask);
    mask == 0 || ((mix_twice(group) >> 32) as u32 ^ sequence ^ event) & mask == 0
}

/// Returns the number of packets that a packet with this timestamp represents; `None` outside of the sample.
#[inline(always)]
pub fn weight(timestamp: u64) -> Option<u64> {
    let mask = variable(&MASK);
    if mix_twice(timestamp) >> 32 & mask == 0 { Some(mask + 1) } else { None }
}
