//! Entry of the network layer: the packet is checked here, before netfilter.

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{Network, Path},
    loss::PacketLoss,
};

use super::{arguments::first, reached, subject::arriving};
use crate::kernel::{
    event::{PacketEvent, departs},
    filter::{Which, apart},
    owner,
    pointer::{Typed, Untyped},
};

/// A `sk_buff`, which has its device.
#[inline(always)]
fn received(skb: Typed, network: Network, which: Which) {
    let path = Path::ip(network);
    let slot = || owner::slot_of_namespace(skb);
    // Such a packet takes no clock.
    if departs(skb) {
        return reached(path, &arriving(skb), Err(PacketLoss::TransmitStamp), which, slot);
    }
    reached(path, &arriving(skb), PacketEvent::delivered(skb), which, slot);
}

/// The same where nothing is known of it but where it is.
#[inline(always)]
fn probed(skb: Untyped, network: Network) {
    let slot = || owner::slot_of_namespace(skb);
    reached(Path::ip(network), &arriving(skb), PacketEvent::arrived(skb), Which::Chosen, slot);
}

/// `struct sk_buff *ip_rcv_core(struct sk_buff *skb, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip_rcv_core(ctx: FEntryContext) -> i32 {
    // SAFETY: argument 0 is the packet.
    apart(|which| received(unsafe { Typed::new(ctx.arg(0)) }, Network::Ipv4, which))
}

/// `struct sk_buff *ip6_rcv_core(struct sk_buff *skb, struct net_device *dev, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip6_rcv_core(ctx: FEntryContext) -> i32 {
    // SAFETY: argument 0 is the packet.
    apart(|which| received(unsafe { Typed::new(ctx.arg(0)) }, Network::Ipv6, which))
}

/// The same function as [`ip_rcv_core`].
#[kprobe]
fn ip_rcv_core_probe(ctx: ProbeContext) -> i32 {
    probed(Untyped(first(&ctx)), Network::Ipv4);
    0
}

/// The same function as [`ip6_rcv_core`].
#[kprobe]
fn ip6_rcv_core_probe(ctx: ProbeContext) -> i32 {
    probed(Untyped(first(&ctx)), Network::Ipv6);
    0
}
