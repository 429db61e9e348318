//! Packets are dropped, anywhere in the kernel. What is freed since it was used up does not come here.

use aya_ebpf::{EbpfContext as _, macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::workload::{Slot, ownership};

use super::{owner::slot_of_owner, send};
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
    dropped(&ctx, reason)
}

/// Tracepoint `kfree_skb(struct sk_buff *skb, void *location)`, before 5.17: nobody says why.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb_unexplained(ctx: BtfTracePointContext) -> i32 {
    dropped(&ctx, 0)
}

#[inline(always)]
fn dropped(ctx: &BtfTracePointContext, reason: u32) -> i32 {
    network_drops::dropped(reason, || slot_of(ctx));
    // SAFETY: argument 0 is the packet.
    unsafe { send::dropped(ctx.arg(0)) };
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
