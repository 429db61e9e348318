//! Entry of the network layer: the packet is checked here, before netfilter.

use aya_ebpf::{macros::fentry, programs::FEntryContext};
use undercurrent_ebpf::abi::latency::{Network, Path};

use super::{reached, subject::Arriving};
use crate::kernel::{event::PacketEvent, owner};

#[inline(always)]
fn received(ctx: &FEntryContext, network: Network) -> i32 {
    let skb = ctx.arg(0);
    // SAFETY: argument 0 of both functions is the `sk_buff`.
    let event = unsafe { PacketEvent::undelivered(skb) };
    // SAFETY: as above, and it has its device.
    reached(Path::ip(network), &Arriving(skb), event, || unsafe { owner::slot_of_namespace(skb) });
    0
}

/// `struct sk_buff *ip_rcv_core(struct sk_buff *skb, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip_rcv_core(ctx: FEntryContext) -> i32 {
    received(&ctx, Network::Ipv4)
}

/// `struct sk_buff *ip6_rcv_core(struct sk_buff *skb, struct net_device *dev, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip6_rcv_core(ctx: FEntryContext) -> i32 {
    received(&ctx, Network::Ipv6)
}
