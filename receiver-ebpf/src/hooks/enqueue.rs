//! Arrival in a socket's receive queue.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, kprobe, map},
    maps::PerCpuArray,
    programs::{BtfTracePointContext, FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, ReceivePoint, Transport},
    loss::PacketLoss,
};

use super::{
    ETH_P_IPV6, IPPROTO_UDP,
    arguments::{first, second},
    reached_in_order, reached_over, reached_socket,
    socket::{is_inet, peer_ip_version},
    subject::InSocket,
};
use crate::{
    kernel::{
        context::Arguments as _,
        event::PacketEvent,
        fields::{
            SKB_CB, SKB_PROTOCOL, SOCK_PROTOCOL, SOCK_RCVQ_TAIL, SOCK_RECEIVE_ALLOCATED, SOCK_RECEIVE_BUFFER,
            SOCK_RECEIVE_QUEUE, SOCK_TYPE, SkBuff, Sock, TCP_END,
        },
        filter::{FilterMode, specialize},
        head_of_line::{self, At},
        owner,
        pointer::{Access, Probed, Ptr, Typed},
        sample, tcp,
        workarounds::Once,
    },
    signals::{latency, receive_wait},
};

/// `sock.sk_type` of UDP sockets.
const SOCK_DGRAM: u16 = 2;

/// Handles a datagram that is about to enter its socket's queue. The socket is trusted.
#[inline(always)]
fn datagram_enters(sock: Ptr<Sock>, skb: Ptr<SkBuff>, mode: FilterMode) {
    let slot = move || owner::slot_of_owner(sock);
    reached_socket(skb, &InSocket { sock, skb }, Layer::SocketEnqueued, Transport::Udp, mode, slot);
}

/// Returns true if UDP refuses a datagram because the socket's queue is full, by the rule of `__udp_enqueue_schedule_skb` (5.10 to 7.3).
#[inline(always)]
fn is_full<A: Access>(sock: Ptr<Sock, A>) -> bool {
    sock.read(&SOCK_RECEIVE_ALLOCATED) > sock.read(&SOCK_RECEIVE_BUFFER)
}

/// Handles a packet for a kprobe. A kprobe has no access to socket storage, so the packet counts for the socket's creator.
#[inline(always)]
fn probed(sock: Ptr<Sock, Probed>, skb: Ptr<SkBuff, Probed>, transport: Transport) {
    let slot = || owner::slot(owner::creator(sock));
    reached_socket(skb, &InSocket { sock, skb }, Layer::SocketEnqueued, transport, FilterMode::On, slot);
}

/// `int tcp_queue_rcv(struct sock *sk, struct sk_buff *skb, bool *fragstolen)`, 5.10 to 7.3. At entry: the function may
/// merge the packet into the last one of the queue and free it.
#[fentry]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn tcp_queue_rcv(ctx: FEntryContext) -> i32 {
    let early = sample::early();
    receive_wait::data_arrived(ctx.pointer(0), 0, early);
    specialize!(|mode| segment_enters(ctx.pointer(0), ctx.pointer(1), early, mode))
}

/// Handles a segment that is about to enter its connection's queue. The socket is trusted.
#[inline(always)]
fn segment_enters(sock: Ptr<Sock>, skb: Ptr<SkBuff>, early: u64, mode: FilterMode) {
    let version = if skb.read(&SKB_PROTOCOL) == ETH_P_IPV6 { IpVersion::Ipv6 } else { IpVersion::Ipv4 };
    let (packet, event) = (InSocket { sock, skb }, PacketEvent::delivered_at(skb, early));
    let once = Once(sock);
    let slot =
        // See `reached`.
        #[inline(always)]
        move || owner::slot_of_owner(once.take());
    reached_over(Layer::SocketEnqueued, Transport::Tcp, version, &packet, event, mode, slot);
}

/// [`tcp_queue_rcv`] by kprobe.
#[kprobe]
fn tcp_queue_rcv_probe(ctx: ProbeContext) -> i32 {
    probed(Ptr::at(first(&ctx)), Ptr::at(second(&ctx)), Transport::Tcp);
    0
}

/// `int __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb)`, 5.10 to 7.3. At entry: at exit a reader may have freed the
/// packet.
#[fentry]
fn udp_enqueue_schedule_skb(ctx: FEntryContext) -> i32 {
    if is_full::<Typed>(ctx.pointer(0)) {
        return 0;
    }
    specialize!(|mode| datagram_enters(ctx.pointer(0), ctx.pointer(1), mode))
}

/// [`udp_enqueue_schedule_skb`] by kprobe.
#[kprobe]
fn udp_enqueue_schedule_skb_probe(ctx: ProbeContext) -> i32 {
    let (sock, skb) = (Ptr::at(first(&ctx)), Ptr::at(second(&ctx)));
    if !is_full(sock) {
        probed(sock, skb, Transport::Udp);
    }
    0
}

/// Tracepoint `sk_data_ready(const struct sock *sk)`, 6.3 and later: a socket notifies its readers. The new packet is the last of
/// the receive queue. TCP holds the socket lock, so the packet is still there; a reader may already have taken UDP's.
#[btf_tracepoint(function = "sk_data_ready")]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn sk_data_ready(ctx: BtfTracePointContext) -> i32 {
    let sock: Ptr<Sock> = ctx.pointer(0);
    if !is_inet(sock) {
        return 0;
    }
    // The clock is read before the following loads, which it would wait for.
    let early = sample::early();
    let (transport, skb) = (transport_of(sock), sock.follow(&SOCK_RCVQ_TAIL));
    let empty = skb.raw().addr() == sock.embedded(&SOCK_RECEIVE_QUEUE).raw().addr();
    match transport {
        // A listener has connections instead of packets, and a connection may notify of a change of state.
        Some(Transport::Tcp) if empty => 0,
        Some(Transport::Tcp) => {
            receive_wait::data_arrived(sock, 1, early);
            specialize!(|mode| segment_queued(sock, skb, early, mode))
        }
        Some(Transport::Udp) if empty => specialize!(|mode| datagram_gone(sock, mode)),
        Some(Transport::Udp) => specialize!(|mode| datagram_queued(sock, skb, early, mode)),
        None => 0,
    }
}

/// Returns the transport protocol of an IPv4 or IPv6 socket. The socket type excludes raw sockets.
#[inline(always)]
fn transport_of(sock: Ptr<Sock>) -> Option<Transport> {
    if tcp::is_connection(sock) {
        Some(Transport::Tcp)
    } else if sock.read(&SOCK_TYPE) == SOCK_DGRAM && sock.read(&SOCK_PROTOCOL) == u16::from(IPPROTO_UDP) {
        Some(Transport::Udp)
    } else {
        None
    }
}

/// The timestamp of the last notified packet on each CPU.
#[map]
static NOTIFIED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Returns true if the last notification on this CPU was for an equal packet. Connections with kTLS notify twice, and a
/// connection without room for a segment notifies again for the previous one.
#[inline(always)]
fn notified_before(event: &PacketEvent) -> bool {
    let Some(last) = NOTIFIED.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's entry, which lives as long as the program.
    unsafe { core::ptr::replace(last, event.timestamp) == event.timestamp }
}

/// Handles a segment in its connection's queue. If the segment filled a gap, `skb` is the last of the segments that had
/// waited for it, and its age is the network's. The socket is trusted, the packet is not.
#[inline(always)]
fn segment_queued(sock: Ptr<Sock>, skb: Ptr<SkBuff>, early: u64, mode: FilterMode) {
    let packet = InSocket { sock, skb };
    // From the socket: loads through a trusted pointer are cheaper, since loads from the packet need a fault handler.
    let version = peer_ip_version(sock);
    let count = Once(|| tcp::out_of_order_untrusted(sock));
    let until = || skb.embedded(&SKB_CB).read(&TCP_END);
    let event = PacketEvent::delivered_at(skb, early);
    if matches!(&event, Ok(Some(event)) if notified_before(event)) {
        return;
    }
    let blocked =
        // Inlined as `slot` is.
        #[inline(always)]
        move || head_of_line::blocked(sock, At::Arrival, count.take(), until);
    let once = Once(sock);
    let slot =
        // See `reached`.
        #[inline(always)]
        move || owner::slot_of_owner(once.take());
    reached_in_order(Layer::SocketEnqueued, version, &packet, event, mode, blocked, slot);
}

/// Handles a datagram in its socket's queue. The socket is trusted, the packet is not.
#[inline(always)]
fn datagram_queued(sock: Ptr<Sock>, skb: Ptr<SkBuff>, early: u64, mode: FilterMode) {
    let packet = InSocket { sock, skb };
    let version = if skb.read(&SKB_PROTOCOL) == ETH_P_IPV6 { IpVersion::Ipv6 } else { IpVersion::Ipv4 };
    let once = Once(sock);
    let slot =
        // See `reached`.
        #[inline(always)]
        move || owner::slot_of_owner(once.take());
    let event = PacketEvent::delivered_at(skb, early);
    reached_over(Layer::SocketEnqueued, Transport::Udp, version, &packet, event, mode, slot);
}

/// Counts a datagram that a reader took before the notification.
#[inline(always)]
fn datagram_gone(sock: Ptr<Sock>, mode: FilterMode) {
    let reason = if mode == FilterMode::On { PacketLoss::NotFilterable } else { PacketLoss::MissingStart };
    let point = ReceivePoint::of(Layer::SocketEnqueued, Transport::Udp, peer_ip_version(sock));
    latency::lost(point, reason, 1);
}
