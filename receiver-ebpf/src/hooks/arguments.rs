//! Arguments of functions, at places that the loader sets.
//!
//! The verifier knows such a place for a constant, and so the argument's type.

use core::arch::asm;

use aya_ebpf::{EbpfContext, programs::FEntryContext};
use undercurrent_ebpf::abi::extra::ARGUMENTS;

use crate::kernel::set_outside;

/// A word of a context, at a distance in bytes that stands in the instruction: the verifier takes no other. Not `pure`, or
/// words that are not there would be read ahead of time.
macro_rules! word {
    ($context:expr, $distance:literal) => {{
        let word: *const u8;
        // SAFETY: an argument of the context, which the verifier checks.
        unsafe {
            asm!(concat!("{} = *(u64 *)({} + ", $distance, ")"), out(reg) word, in(reg) $context, options(nostack));
        }
        word
    }};
}

/// The word of a context at a place that the loader sets, of these places.
macro_rules! word_at {
    ($context:expr, $place:expr, $($word:literal at $distance:literal),+) => {{
        let context = $context;
        // Read here and no earlier: what waits on the stack is a constant no more.
        match set_outside($place) {
            $($word => word!(context, $distance),)+
            _ => core::ptr::null(),
        }
    }};
}

/// An argument, which the context has in its words.
#[inline(always)]
pub fn argument(ctx: &FEntryContext, place: &'static u32) -> *const u8 {
    const { assert!(ARGUMENTS == 6) };
    word_at!(ctx.as_ptr(), place, 0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40)
}

/// An argument, or what a function returns, which the context has among the processor's registers: the places of those
/// that pass the first six on x86-64 (8, 9 and 11 to 14) and aarch64 (0 to 5), and of the result (10 and 0).
#[inline(always)]
pub fn register(ctx: &impl EbpfContext, place: &'static u32) -> *const u8 {
    word_at!(
        ctx.as_ptr(), place,
        0 at 0, 1 at 8, 2 at 16, 3 at 24, 4 at 32, 5 at 40, 8 at 64, 9 at 72, 10 at 80, 11 at 88, 12 at 96, 13 at 104,
        14 at 112
    )
}

/// Declares what a program reads of the function that its kprobe is on, by the symbol of the register's place.
macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(ctx: &impl EbpfContext) -> *const u8 {
            #[unsafe(export_name = $symbol)]
            #[unsafe(link_section = ".rodata.flags")]
            static PLACE: u32 = 0;
            register(ctx, &PLACE)
        }
    )+};
}

registers! {
    /// The function's first argument, at its entry.
    first = "register.first";
    /// Its second one.
    second = "register.second";
    /// Its third one.
    third = "register.third";
    /// What it returns, at its exit.
    returned = "register.returned";
}
