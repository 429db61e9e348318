//! What the handlers know of the running kernel.

pub mod cells;
pub mod clock;
pub mod event;
pub mod field;
pub mod fields;
pub mod filter;
mod object;
pub mod owner;
pub mod sample;
pub mod shared;
mod storage;

/// The value of a global that the loader, or user space, sets behind the compiler's back.
#[inline(always)]
pub fn set_outside<T: Copy>(global: &'static T) -> T {
    // SAFETY: a reference to a live static; volatile because the compiler knows its first value alone.
    unsafe { core::ptr::read_volatile(global) }
}
