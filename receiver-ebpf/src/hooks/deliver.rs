//! Delivery to the transport protocol.

use aya_ebpf::{
    EbpfContext as _,
    bindings::__sk_buff,
    helpers::{bpf_get_socket_cookie, bpf_sk_fullsock, bpf_skb_cgroup_id},
    macros::{cgroup_skb, fentry, kprobe},
    programs::{FEntryContext, ProbeContext, SkBuffContext},
};
use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    workload::{Slot, ownership},
};

use super::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, Once,
    arguments::first,
    reached,
    subject::{Filtered, entering},
};
use crate::kernel::{
    event::PacketEvent,
    filter::{Which, apart},
    owner,
    pointer::{Pointer, Typed, Untyped},
    sample,
};

/// Bytes that every IPv4 and IPv6 header has at least.
const IPV4_HEADER: usize = 20;

/// A `sk_buff`, which still has its device.
#[inline(always)]
fn delivered(skb: impl Pointer, transport: Transport, network: Network, which: Which) {
    let path = Path::of(Layer::Transport, transport, network);
    reached(path, &entering(skb), PacketEvent::delivered(skb), which, || owner::slot_of_namespace(skb));
}

/// Functions that have a packet as their first argument, each with a program of its own name, and one for kprobes.
macro_rules! protocols {
    ($($(#[$prototype:meta])* $entry:ident $probe:ident $transport:ident $network:ident;)+) => {$(
        $(#[$prototype])*
        #[fentry]
        fn $entry(ctx: FEntryContext) -> i32 {
            // SAFETY: argument 0 is the packet.
            let skb = || unsafe { Typed::new(ctx.arg(0)) };
            apart(|which| delivered(skb(), Transport::$transport, Network::$network, which))
        }

        $(#[$prototype])*
        #[kprobe]
        fn $probe(ctx: ProbeContext) -> i32 {
            delivered(Untyped(first(&ctx)), Transport::$transport, Network::$network, Which::Chosen);
            0
        }
    )+};
}

protocols! {
    /// `int tcp_v4_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    tcp_v4_rcv tcp_v4_rcv_probe Tcp Ipv4;
    /// `int tcp_v6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    tcp_v6_rcv tcp_v6_rcv_probe Tcp Ipv6;
    /// `int udp_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    udp_rcv udp_rcv_probe Udp Ipv4;
    /// `int udpv6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    udpv6_rcv udpv6_rcv_probe Udp Ipv6;
}

/// `cgroup_skb/ingress`, run by `sk_filter_trim_cap` once the packet's socket is known. Every packet passes.
#[cgroup_skb(ingress)]
// It is too long for the compiler to do so unasked, and a call more.
#[inline(always)]
fn cgroup_ingress(ctx: SkBuffContext) -> i32 {
    let skb: *const __sk_buff = ctx.as_ptr().cast();
    apart(|which| filtered(skb, which));
    1
}

#[inline(always)]
fn filtered(skb: *const __sk_buff, which: Which) {
    let early = sample::early();
    // A branch for each path, so that each has its histogram at a constant offset.
    match protocols(skb) {
        Some((Transport::Tcp, Network::Ipv4)) => passed(skb, Transport::Tcp, Network::Ipv4, early, which),
        Some((Transport::Tcp, Network::Ipv6)) => passed(skb, Transport::Tcp, Network::Ipv6, early, which),
        Some((Transport::Udp, Network::Ipv4)) => passed(skb, Transport::Udp, Network::Ipv4, early, which),
        Some((Transport::Udp, Network::Ipv6)) => passed(skb, Transport::Udp, Network::Ipv6, early, which),
        None => {}
    }
}

#[inline(always)]
fn passed(skb: *const __sk_buff, transport: Transport, network: Network, early: u64, which: Which) {
    // SAFETY: a field of the context, which the verifier rewrites to a load from the packet.
    let event = PacketEvent::stamped(unsafe { (*skb).tstamp }, early);
    let once = Once(skb);
    let slot =
        // See `reached`.
        #[inline(always)]
        move || slot_of(once.take());
    reached(Path::of(Layer::Transport, transport, network), &Filtered(skb), event, which, slot);
}

/// The slot of the receiving socket's owner.
#[inline(always)]
fn slot_of(skb: *const __sk_buff) -> Slot {
    // SAFETY: the context.
    let cookie = unsafe { owner::cookie(skb.cast()) };
    // SAFETY: a helper on the context; it makes the cookie of a socket that has none.
    let cookie = cookie.unwrap_or_else(|| unsafe { bpf_get_socket_cookie(skb.cast_mut().cast()) });
    owner::slot_of_socket(cookie, || owner_of(skb))
}

/// The owner of the receiving socket.
#[inline(always)]
fn owner_of(skb: *const __sk_buff) -> u64 {
    // SAFETY: a field of the context.
    let socket = unsafe { (*skb).__bindgen_anon_2.sk };
    if socket.is_null() {
        return 0;
    }
    // SAFETY: the pointer was checked for null.
    match unsafe { owner::reader(socket.cast()) } {
        Some(reader) => reader,
        // SAFETY: a helper on the context.
        None if owner::by() == ownership::UNIFIED => unsafe { bpf_skb_cgroup_id(skb.cast_mut()) },
        None => 0,
    }
}

/// The protocols of a packet whose data begins at its IP header; `None` for those that the layer does not speak of.
#[inline(always)]
fn protocols(skb: *const __sk_buff) -> Option<(Transport, Network)> {
    // SAFETY: fields of the context, which the verifier rewrites.
    let (protocol, data, end) = unsafe { ((*skb).protocol as u16, (*skb).data as usize, (*skb).data_end as usize) };
    if data + IPV4_HEADER > end {
        return None;
    }
    let (network, field) = match protocol {
        ETH_P_IP => (Network::Ipv4, 9),
        ETH_P_IPV6 => (Network::Ipv6, 6),
        _ => return None,
    };
    // SAFETY: within the header that was compared with the packet's end.
    let transport = match unsafe { *((data + field) as *const u8) } {
        IPPROTO_TCP => Transport::Tcp,
        IPPROTO_UDP => Transport::Udp,
        _ if protocol == ETH_P_IPV6 => transport_of_socket(skb)?,
        _ => return None,
    };
    Some((transport, network))
}

/// The protocol of the receiving socket: what an IPv6 packet carries behind extension headers.
#[inline(always)]
fn transport_of_socket(skb: *const __sk_buff) -> Option<Transport> {
    // SAFETY: a field of the context.
    let socket = unsafe { (*skb).__bindgen_anon_2.sk };
    if socket.is_null() {
        return None;
    }
    // SAFETY: the pointer was checked for null.
    let socket = unsafe { bpf_sk_fullsock(socket) };
    if socket.is_null() {
        return None;
    }
    // SAFETY: the pointer was checked for null.
    match unsafe { (*socket).protocol } as u8 {
        IPPROTO_TCP => Some(Transport::Tcp),
        IPPROTO_UDP => Some(Transport::Udp),
        _ => None,
    }
}
