//! A program that has an interface receive the packet that it is run on, for tests whose packets bear stamps of their choice.
//! It is attached to nothing.
#![no_std]
#![no_main]

#[path = "../kernel/object.rs"]
mod object;

use aya_ebpf::{macros::classifier, programs::TcContext};

/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;

/// The packet's mark is the interface's index. Nothing follows where the packet has come.
#[classifier]
fn inject(ctx: TcContext) -> i32 {
    // SAFETY: the context of a running program.
    let interface = unsafe { (*ctx.skb.skb).mark };
    i32::from(ctx.clone_redirect(interface, INGRESS).is_err())
}
