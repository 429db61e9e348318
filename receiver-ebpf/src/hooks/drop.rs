//! Packet drops anywhere in the kernel. The tracepoint does not fire for packets that are freed after use.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use undercurrent_ebpf::abi::workload::{Slot, ownership};

use super::{send, socket::slot_of_owner};
use crate::{
    kernel::{
        constant::constants,
        context::Arguments as _,
        fields::{SKB_SK, SkBuff},
        owner,
        pointer::Ptr,
    },
    signals::{network_cpu, network_drops},
};

constants! {
    /// Number of arguments of the running kernel's tracepoint.
    ARGUMENTS = "arguments.kfree_skb";
}

/// Tracepoint `kfree_skb(struct sk_buff *skb, void *location, enum skb_drop_reason reason)`, 5.17 and later. Since 6.11 it has
/// a fourth argument `struct sock *rx_sk`, the receiving socket or null.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    dropped(&ctx, ctx.word(2) as u32)
}

/// Tracepoint `kfree_skb(struct sk_buff *skb, void *location)`, before 5.17: without a reason.
#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb_unexplained(ctx: BtfTracePointContext) -> i32 {
    dropped(&ctx, 0)
}

#[inline(always)]
fn dropped(ctx: &BtfTracePointContext, reason: u32) -> i32 {
    network_drops::dropped(reason, || slot_of(ctx));
    network_cpu::finished(|| slot_of(ctx));
    send::dropped(ctx.pointer(0));
    0
}

/// Returns the slot of the owner of the receiving socket, or of the sending socket.
#[inline(always)]
fn slot_of(ctx: &BtfTracePointContext) -> Slot {
    if owner::by() == ownership::OFF {
        return Slot::NODE;
    }
    if ARGUMENTS.get() > 3
        && let Some(slot) = slot_of_owner(ctx.pointer(3))
    {
        return slot;
    }
    let skb: Ptr<SkBuff> = ctx.pointer(0);
    slot_of_owner(skb.follow(&SKB_SK)).unwrap_or(Slot::NODE)
}
