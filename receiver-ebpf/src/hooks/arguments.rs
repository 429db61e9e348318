//! Arguments of functions, at indices that the loader sets.
//!
//! An index is a constant to the verifier, which therefore knows the type of the argument.

use core::arch::asm;

use aya_ebpf::{EbpfContext, programs::FEntryContext};
use undercurrent_ebpf::abi::extra::ARGUMENTS;

use crate::kernel::{
    constant::{Constant, constants},
    pointer::Ptr,
};

/// Loads a word of a context at a constant offset: the verifier rejects offsets in registers. The assembly is not `pure`,
/// or the compiler would load words speculatively that the context does not have.
macro_rules! word {
    ($context:expr, $offset:literal, $word:ty) => {{
        let word: $word;
        // SAFETY: the verifier checks the load from the context.
        unsafe {
            asm!(concat!("{} = *(u64 *)({} + ", $offset, ")"), out(reg) word, in(reg) $context, options(nostack));
        }
        word
    }};
}

/// Loads the word of a context at an index that the loader sets.
macro_rules! word_at {
    ($context:expr, $index:expr, $none:expr, $word:ty, $($value:literal at $offset:literal),+) => {{
        let context = $context;
        // The index is read here: the verifier does not track a constant that the compiler has spilled to the stack.
        match $index.get() {
            $($value => word!(context, $offset, $word),)+
            _ => $none,
        }
    }};
}

/// Returns a pointer argument of a traced function.
#[inline(always)]
pub fn argument<T: 'static, const INDEX: u64>(ctx: &FEntryContext, index: &'static Constant<INDEX>) -> Ptr<T> {
    const { assert!(ARGUMENTS == 6) };
    let pointer = word_at!(
        ctx.as_ptr(), index, core::ptr::null(), *const T, 0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40
    );
    // SAFETY: an argument, or null.
    unsafe { Ptr::typed(pointer) }
}

/// Returns a register of the context of a kprobe: one of the first six arguments, or the return value.
///
/// The indices of arguments are 8, 9 and 11 to 14 on x86-64, and 0 to 5 on aarch64. The index of the return value is 10 on
/// x86-64 and 0 on aarch64.
#[inline(always)]
pub fn register<const INDEX: u64>(ctx: &impl EbpfContext, index: &'static Constant<INDEX>) -> u64 {
    word_at!(
        ctx.as_ptr(), index, 0, u64,
        0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40, 8 at 64, 9 at 72, 10 at 80, 11 at 88, 12 at 96, 13 at 104,
        14 at 112
    )
}

/// Declares accessors for the registers of a kprobe, by the symbol of the register's index.
macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(ctx: &impl EbpfContext) -> u64 {
            constants! {
                INDEX = $symbol;
            }
            register(ctx, &INDEX)
        }
    )+};
}

registers! {
    /// Returns the first argument, at the function's entry.
    first = "register.first";
    /// Returns the second argument, at the function's entry.
    second = "register.second";
    /// Returns the third argument, at the function's entry.
    third = "register.third";
}
