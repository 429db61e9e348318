//! What the handlers know of the running kernel.

pub mod cells;
pub mod clock;
pub mod event;
pub mod field;
pub mod fields;
pub mod filter;
pub mod group;
pub mod head_of_line;
mod object;
pub mod owner;
pub mod pointer;
pub mod sample;
pub mod served;
pub mod shared;
mod storage;
pub mod tcp;

/// Where an object stands in memory, as a number that tells it from others: the distance from a global, since the verifier
/// lets pointers be subtracted and nothing else.
#[inline(always)]
pub fn address(object: *const u8) -> u64 {
    static HERE: u32 = 0;
    (object as u64).wrapping_sub(&raw const HERE as u64)
}

/// The value of a global that the loader, or user space, sets behind the compiler's back.
#[inline(always)]
pub fn set_outside<T: Copy>(global: &'static T) -> T {
    // SAFETY: a reference to a live static; volatile because the compiler knows its first value alone.
    unsafe { core::ptr::read_volatile(global) }
}
