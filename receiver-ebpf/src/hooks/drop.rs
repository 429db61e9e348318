//! Packets are dropped, anywhere in the kernel. What is freed since it was used up does not come here.

use aya_ebpf::{EbpfContext as _, macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::workload::{Slot, ownership};

use super::owner::is_whole;
use crate::{
    kernel::{fields::SKB_SK, owner, set_outside},
    signals::network_drops,
};

/// Arguments of the running kernel's tracepoint.
#[unsafe(export_name = "arguments.kfree_skb")]
#[unsafe(link_section = ".rodata.flags")]
static ARGUMENTS: u32 = 0;

/// Tracepoint `kfree_skb(struct sk_buff *skb, void *location, enum skb_drop_reason reason)`, 5.17 and later; from 6.11 on
/// with `struct sock *rx_sk`, the receiving socket or null, after these.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the kernel passes three arguments, or refuses the program.
    let reason = unsafe { *ctx.as_ptr().cast::<u64>().add(2) } as u32;
    network_drops::dropped(reason, || slot_of(&ctx));
    0
}

/// Tracepoint `kfree_skb(struct sk_buff *skb, void *location)`, before 5.17: nobody says why.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb_unexplained(ctx: BtfTracePointContext) -> i32 {
    network_drops::dropped(0, || slot_of(&ctx));
    0
}

/// The slot of whoever owns the socket that was to receive the packet, or that sent it.
#[inline(always)]
fn slot_of(ctx: &BtfTracePointContext) -> Slot {
    if owner::by() == ownership::OFF {
        return Slot::NODE;
    }
    if set_outside(&ARGUMENTS) > 3 {
        // SAFETY: the kernel passes an argument more.
        let receiver = unsafe { *ctx.as_ptr().cast::<*const u8>().add(3) };
        // SAFETY: a typed argument.
        if let Some(slot) = unsafe { slot_of_owner(receiver) } {
            return slot;
        }
    }
    // SAFETY: argument 0 is the packet, and the verifier knows what its socket is.
    unsafe { slot_of_owner(SKB_SK.load(ctx.arg(0)) as *const u8) }.unwrap_or(Slot::NODE)
}

/// The slot of a socket's owner; `None` of what is no whole internet socket.
///
/// # Safety
/// `sock` is a typed `struct sock *`, or null.
#[inline(always)]
unsafe fn slot_of_owner(sock: *const u8) -> Option<Slot> {
    // SAFETY: by the caller.
    unsafe { if is_whole(sock) { Some(owner::slot_of_owner(sock)) } else { None } }
}
