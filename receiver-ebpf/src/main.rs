//! The eBPF programs. One program a hook (`hooks/`), one inlined handler a signal (`signals/`), and what they share of
//! the kernel (`kernel/`).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics, stmt_expr_attributes)]
#![expect(internal_features, reason = "an atomic add without a result is all that this target has")]

mod hooks;
mod kernel;
mod signals;
