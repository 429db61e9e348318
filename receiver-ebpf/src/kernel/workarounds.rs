//! Workarounds for what the compiler and the verifiers do, each with the verifier's message or the cost.
//!
//! The compiler is LLVM 22. [`specialize!`](super::filter::specialize) and the assembly of [`super::constant`] and [`super::field`] are
//! described where they are.

use core::{arch::asm, hint::black_box};

/// Returns a number in a register of its own. The compiler knows nothing of its value, so it keeps a check of its bounds.
///
/// The verifiers of 5.10 and 6.1 do not apply the check of a register to its copy on the stack (`R2 unbounded memory access`). A copy
/// that is used shortly after its check stays in its register.
#[inline(always)]
pub fn checked_copy(number: u64) -> u64 {
    let copy: u64;
    // SAFETY: a copy of a register.
    unsafe { asm!("{} = {}", out(reg) copy, in(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    copy
}

/// Returns a value of which the compiler knows nothing, so that it cannot move or remove the check of the value:
/// - It compares the factor instead of the product, and the verifier loses the bounds of the product (`R2 max value is outside of the
///   allowed memory range`).
/// - It removes a mask that limits a number, and verifiers lose the bounds of a spilled number (`R2 unbounded memory access`).
/// - It merges two tests of a value past the construction of a struct, and the verifier rejects reads of uninitialized words (`invalid
///   read from stack`).
#[inline(always)]
pub fn opaque<T>(value: T) -> T {
    black_box(value)
}

/// Returns an element without a check of its index. The compiler keeps checks that always hold, and the panic after them ends the
/// program (`last insn is not an exit or jmp`).
///
/// # Safety
/// The index is within the array.
#[inline(always)]
pub unsafe fn element<T, const N: usize>(array: &mut [T; N], index: usize) -> &mut T {
    // SAFETY: by the contract of this function.
    unsafe { array.get_unchecked_mut(index) }
}

/// A value that is not `Copy`, so a closure that captures it is `FnOnce`.
///
/// The compiler outlines a closure that is `Fn`, through an intermediate function without its inline attribute. The call takes 15 ns on
/// a host that protects returns against speculation.
pub struct Once<T>(pub T);

impl<T> Once<T> {
    #[inline(always)]
    pub fn take(self) -> T {
        self.0
    }
}
