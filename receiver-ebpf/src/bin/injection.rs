//! A program that injects its packet into the receive path of an interface, for tests with packets of any timestamp. Tests run
//! it without attaching it.
#![no_std]
#![no_main]

#[path = "../kernel/object.rs"]
mod object;

use aya_ebpf::{macros::classifier, programs::TcContext};

/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;

/// Injects the packet into the interface with the index in the packet's mark.
#[classifier]
fn inject(ctx: TcContext) -> i32 {
    // SAFETY: the context of a running program.
    let interface = unsafe { (*ctx.skb.skb).mark };
    i32::from(ctx.clone_redirect(interface, INGRESS).is_err())
}
