//! A packet that this host forwards.

use aya_ebpf::{
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};

use undercurrent_ebpf::abi::latency::IpVersion;

use super::{arguments::first, subject::packet_identity};
use crate::{
    kernel::{
        clock,
        context::Arguments as _,
        event::has_departure_time,
        field::read_at,
        fields::{SKB_HEAD, SKB_NETWORK_HEADER, SKB_TSTAMP, SkBuff},
        pointer::{Access, Ptr},
        tcp_header,
    },
    signals::forwarded,
};

/// Handles a packet before the kernel clears its receive timestamp. A segment from this node, for example from a container, has none: its
/// time begins here.
#[inline(always)]
fn leaves<A: Access>(skb: Ptr<SkBuff, A>, version: IpVersion) -> i32 {
    let timestamp = if has_departure_time(skb) { clock::wall(clock::monotonic()) } else { skb.read(&SKB_TSTAMP) };
    let header = skb.read(&SKB_HEAD) + u64::from(skb.read(&SKB_NETWORK_HEADER));
    if timestamp != 0
        && let Some(distinct) = read_at(header + tcp_header::distinct_bytes(version) as u64)
    {
        forwarded::leaves(timestamp, packet_identity(skb), distinct);
    }
    0
}

/// `int ip_forward(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn ip_forward(ctx: FEntryContext) -> i32 {
    leaves(ctx.pointer(0), IpVersion::Ipv4)
}

/// `int ip6_forward(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn ip6_forward(ctx: FEntryContext) -> i32 {
    leaves(ctx.pointer(0), IpVersion::Ipv6)
}

/// [`ip_forward`] by kprobe.
#[kprobe]
fn ip_forward_probe(ctx: ProbeContext) -> i32 {
    leaves(Ptr::at(first(&ctx)), IpVersion::Ipv4)
}

/// [`ip6_forward`] by kprobe.
#[kprobe]
fn ip6_forward_probe(ctx: ProbeContext) -> i32 {
    leaves(Ptr::at(first(&ctx)), IpVersion::Ipv6)
}
