//! Delivery to the transport protocol.

use aya_ebpf::{
    EbpfContext as _,
    bindings::{__sk_buff, bpf_sock},
    helpers::bpf_sk_fullsock,
    macros::{cgroup_skb, fentry},
    programs::{FEntryContext, SkBuffContext},
};
use undercurrent_ebpf::abi::latency::{Layer, Network, Transport};

use super::{ETH_P_IP, ETH_P_IPV6, network};
use crate::{kernel::event::PacketEvent, signals::latency};

#[inline(always)]
fn delivered(ctx: &FEntryContext, transport: Transport, network: Network) -> i32 {
    // SAFETY: argument 0 of these functions is the `sk_buff`.
    let event = unsafe { PacketEvent::of(ctx.arg(0)) };
    latency::reached(Layer::Transport, transport, network, &event);
    0
}

/// `int tcp_v4_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn tcp_v4_rcv(ctx: FEntryContext) -> i32 {
    delivered(&ctx, Transport::Tcp, Network::Ipv4)
}

/// `int tcp_v6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn tcp_v6_rcv(ctx: FEntryContext) -> i32 {
    delivered(&ctx, Transport::Tcp, Network::Ipv6)
}

/// `int udp_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn udp_rcv(ctx: FEntryContext) -> i32 {
    delivered(&ctx, Transport::Udp, Network::Ipv4)
}

/// `int udpv6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
#[fentry]
fn udpv6_rcv(ctx: FEntryContext) -> i32 {
    delivered(&ctx, Transport::Udp, Network::Ipv6)
}

/// `cgroup_skb/ingress`, run by `sk_filter_trim_cap` once the packet's socket is known. Every packet passes.
#[cgroup_skb(ingress)]
fn cgroup_ingress(ctx: SkBuffContext) -> i32 {
    let skb: *const __sk_buff = ctx.as_ptr().cast();
    // SAFETY: fields of the context, which the verifier rewrites.
    let (protocol, socket, stamp) = unsafe { ((*skb).protocol as u16, (*skb).__bindgen_anon_2.sk, (*skb).tstamp) };
    if protocol != ETH_P_IP && protocol != ETH_P_IPV6 {
        return 1;
    }
    if let Some(transport) = transport_of(socket) {
        // The stack has replaced a departure time by now: `skb_clear_delivery_time` runs before local delivery.
        latency::reached(Layer::Transport, transport, network(protocol), &PacketEvent::since(stamp));
    }
    1
}

/// The protocol of the receiving socket, where it is one that the layer speaks of.
#[inline(always)]
fn transport_of(socket: *mut bpf_sock) -> Option<Transport> {
    if socket.is_null() {
        return None;
    }
    // SAFETY: the pointer was checked for null.
    let full = unsafe { bpf_sk_fullsock(socket) };
    if full.is_null() {
        return None;
    }
    // SAFETY: the pointer was checked for null.
    match unsafe { (*full).protocol } {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}
