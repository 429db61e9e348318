//! Access to the running kernel, shared by all handlers.

pub mod cells;
pub mod clock;
pub mod constant;
pub mod context;
pub mod event;
pub mod field;
pub mod fields;
pub mod filter;
pub mod group;
pub mod head_of_line;
mod object;
pub mod owner;
pub mod payload;
pub mod pointer;
pub mod sample;
pub mod served;
pub mod shard;
pub mod shared;
pub mod storage;
pub mod tcp;
pub mod tcp_header;
pub mod unread;
pub mod workarounds;

/// Returns the value of a variable, which user space updates.
#[inline(always)]
pub fn variable<T: Copy>(global: &'static T) -> T {
    // SAFETY: a reference to a live static; volatile, since the compiler would use the value in the object.
    unsafe { core::ptr::read_volatile(global) }
}
