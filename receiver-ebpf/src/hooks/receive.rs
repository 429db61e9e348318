//! Entry of the network layer, before netfilter.

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, ReceivePoint},
    loss::PacketLoss,
};

use super::{
    arguments::first,
    reached,
    subject::{arriving, packet_identity},
};
use crate::{
    kernel::{
        context::Arguments as _,
        event::{PacketEvent, has_departure_time},
        fields::{SKB_TSTAMP, SkBuff},
        filter::{FilterMode, specialize},
        owner,
        pointer::{Access, Ptr},
    },
    signals::packet_path,
};

/// Handles a packet that has its device.
#[inline(always)]
fn received<A: Access>(skb: Ptr<SkBuff, A>, version: IpVersion, mode: FilterMode) {
    let point = ReceivePoint::ip(version);
    let slot = || owner::slot_of_namespace(skb);
    // A packet without a receive timestamp needs no clock.
    if has_departure_time(skb) {
        packet_path::sent_here(skb.read(&SKB_TSTAMP), || packet_identity(skb));
        return reached(point, &arriving(skb), Err(PacketLoss::TransmitTimestamp), mode, slot);
    }
    reached(point, &arriving(skb), PacketEvent::delivered(skb), mode, slot);
}

/// `struct sk_buff *ip_rcv_core(struct sk_buff *skb, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip_rcv_core(ctx: FEntryContext) -> i32 {
    specialize!(|mode| received(ctx.pointer(0), IpVersion::Ipv4, mode))
}

/// `struct sk_buff *ip6_rcv_core(struct sk_buff *skb, struct net_device *dev, struct net *net)`, 5.10 to 7.3.
#[fentry]
fn ip6_rcv_core(ctx: FEntryContext) -> i32 {
    specialize!(|mode| received(ctx.pointer(0), IpVersion::Ipv6, mode))
}

/// [`ip_rcv_core`] by kprobe.
#[kprobe]
fn ip_rcv_core_probe(ctx: ProbeContext) -> i32 {
    received(Ptr::at(first(&ctx)), IpVersion::Ipv4, FilterMode::On);
    0
}

/// [`ip6_rcv_core`] by kprobe.
#[kprobe]
fn ip6_rcv_core_probe(ctx: ProbeContext) -> i32 {
    received(Ptr::at(first(&ctx)), IpVersion::Ipv6, FilterMode::On);
    0
}
