//! The eBPF programs. One program a hook (`hooks/`), one inlined handler a signal (`signals/`), and what they share of
//! the kernel (`kernel/`).
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "an atomic add without a result is all that this target has")]

mod hooks;
mod kernel;
mod signals;

/// Helpers such as the clock are open to GPL-compatible programs alone.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

/// A panic that can be reached is refused by the verifier: the call below has no definition that it would accept.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    kernel::unreachable_to_the_verifier()
}
