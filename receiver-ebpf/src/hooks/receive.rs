//! Entry of the network layer: the packet is checked here, before netfilter.

use aya_ebpf::{macros::fentry, programs::FEntryContext};
use undercurrent_ebpf::abi::{
    latency::{Network, Path},
    loss::PacketLoss,
};

use super::{reached, subject::Arriving};
use crate::kernel::{
    event::{PacketEvent, departs},
    filter::{Which, apart},
    owner, sample,
};

#[inline(always)]
fn received(ctx: &FEntryContext, network: Network, which: Which) {
    let (path, skb) = (Path::ip(network), ctx.arg(0));
    // SAFETY: argument 0 of both functions is the `sk_buff`, which has its device.
    let slot = || unsafe { owner::slot_of_namespace(skb) };
    // Such a packet takes no clock.
    // SAFETY: as above.
    if unsafe { departs(skb) } {
        return reached(path, &Arriving(skb), Err(PacketLoss::TransmitStamp), which, slot);
    }
    // SAFETY: as above.
    let event = unsafe { PacketEvent::delivered(skb, sample::early()) };
    reached(path, &Arriving(skb), event, which, slot);
}

/// `struct sk_buff *ip_rcv_core(struct sk_buff *skb, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip_rcv_core(ctx: FEntryContext) -> i32 {
    apart(|which| received(&ctx, Network::Ipv4, which))
}

/// `struct sk_buff *ip6_rcv_core(struct sk_buff *skb, struct net_device *dev, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip6_rcv_core(ctx: FEntryContext) -> i32 {
    apart(|which| received(&ctx, Network::Ipv6, which))
}
