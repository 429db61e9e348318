//! Settings that the loader sets before load, as operands of instructions.

use core::{arch::asm, hint::assert_unchecked};

/// A setting. `PLACEHOLDER` is the [placeholder](undercurrent_ebpf::abi::constant::placeholder) of its symbol.
#[repr(transparent)]
pub struct Constant<const PLACEHOLDER: u64>(u32);

impl<const PLACEHOLDER: u64> Constant<PLACEHOLDER> {
    pub const fn declared(default: u32) -> Self {
        Self(default)
    }

    /// Returns the value, a constant to the verifier.
    #[inline(always)]
    pub fn get(&'static self) -> u32 {
        number::<PLACEHOLDER>()
    }
}

/// Returns the number that the loader sets instead of a placeholder.
///
/// The assembly is not `pure`, or the compiler would keep the number in a register, and on the stack if it has none left. The
/// verifier does not track a constant on the stack.
#[inline(always)]
pub(super) fn number<const PLACEHOLDER: u64>() -> u32 {
    let number: u64;
    // SAFETY: a move to a register.
    unsafe { asm!("{} = {} ll", out(reg) number, const PLACEHOLDER, options(nomem, nostack, preserves_flags)) };
    // SAFETY: the loader sets 32-bit numbers.
    unsafe { assert_unchecked(number <= u32::MAX as u64) };
    number as u32
}

/// Declares settings: `NAME = "symbol"`, or `NAME = "symbol", default`. The default is zero.
macro_rules! constants {
    ($($(#[$attribute:meta])* $name:ident = $symbol:expr $(, $default:expr)?;)+) => {$(
        $(#[$attribute])*
        #[unsafe(export_name = $symbol)]
        #[unsafe(link_section = ".constants")]
        static $name: $crate::kernel::constant::Constant<{ undercurrent_ebpf::abi::constant::placeholder($symbol) }> =
            $crate::kernel::constant::Constant::declared(0 $(+ $default)?);
    )+};
}
pub(crate) use constants;
