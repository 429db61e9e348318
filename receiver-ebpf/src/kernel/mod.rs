//! What the handlers know of the running kernel.

pub mod cells;
pub mod clock;
pub mod event;
pub mod field;
pub mod fields;
pub mod owner;
mod storage;

/// Loops for ever, which the verifier refuses in any program that can get here.
pub fn unreachable_to_the_verifier() -> ! {
    loop {
        core::hint::spin_loop();
    }
}
