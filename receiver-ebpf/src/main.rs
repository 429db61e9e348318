//! The eBPF programs: one program per hook (`hooks/`), one inlined handler per signal (`signals/`), and shared access to the
//! kernel (`kernel/`).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics, stmt_expr_attributes)]
#![expect(internal_features, reason = "the target supports atomic additions only as an intrinsic")]

mod hooks;
mod kernel;
mod signals;
