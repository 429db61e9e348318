//! Arrival in a socket's receive queue.

use aya_ebpf::{
    EbpfContext as _,
    macros::{btf_tracepoint, fentry, fexit, kprobe, kretprobe, map},
    maps::PerCpuArray,
    programs::{BtfTracePointContext, FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    loss::PacketLoss,
};

use super::{
    ETH_P_IPV6, IPPROTO_UDP, Once,
    arguments::{first, returned, second},
    owner::is_internet,
    reached_in_order, reached_over, reached_socket,
    read::peer_network,
    subject::InSocket,
};
use crate::{
    kernel::{
        event::PacketEvent,
        fields::{SKB_CONTROL, SKB_PROTOCOL, SOCK_LAST, SOCK_PROTOCOL, SOCK_RECEIVE_QUEUE, SOCK_TYPE, TCP_END},
        filter::{Which, apart},
        head_of_line::{self, At},
        owner,
        pointer::{Typed, Untyped},
        sample, tcp,
    },
    signals::latency,
};

/// `sock.sk_type` of UDP's sockets.
const SOCK_DGRAM: u16 = 2;

/// A packet is, or is about to be, in its socket's queue.
///
/// # Safety
/// Both are typed and trusted pointers, to a `sock` and an `sk_buff`.
#[inline(always)]
unsafe fn enqueued(sock: *const u8, skb: *const u8, transport: Transport, which: Which) {
    // SAFETY: by the caller.
    let packet = unsafe { InSocket { sock: Typed::new(sock), skb: Typed::new(skb) } };
    // SAFETY: by the caller.
    let slot = move || unsafe { owner::slot_of_owner(sock) };
    reached_socket(packet.skb, &packet, Layer::SocketEnqueued, transport, which, slot);
}

/// The same where a kprobe has them. What is kept with a socket is out of its reach: the socket belongs to whoever made it.
#[inline(always)]
fn probed(sock: Untyped, skb: Untyped, transport: Transport) {
    let slot = || owner::slot(owner::creator(sock));
    reached_socket(skb, &InSocket { sock, skb }, Layer::SocketEnqueued, transport, Which::Chosen, slot);
}

/// `int tcp_queue_rcv(struct sock *sk, struct sk_buff *skb, bool *fragstolen)`, 5.10 to 7.3. At its entry: it may free
/// the packet by merging it into the queue's last.
#[fentry]
fn tcp_queue_rcv(ctx: FEntryContext) -> i32 {
    apart(
        // Inlined at once, or the compiler makes one code of both cases again.
        #[inline(always)]
        // SAFETY: the arguments have the types above.
        |which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Tcp, which) },
    )
}

/// The same function as [`tcp_queue_rcv`].
#[kprobe]
fn tcp_queue_rcv_probe(ctx: ProbeContext) -> i32 {
    probed(Untyped(first(&ctx)), Untyped(second(&ctx)), Transport::Tcp);
    0
}

/// `int __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb)`, 5.10 to 7.3. At its exit: what the socket had
/// no room for was not enqueued.
#[fexit]
fn udp_enqueue_schedule_skb(ctx: FExitContext) -> i32 {
    // SAFETY: the word after the two arguments is the return value; `bpf_get_func_ret` would need 5.17.
    let refused = unsafe { *ctx.as_ptr().cast::<u64>().add(2) } as i32;
    if refused != 0 {
        return 0;
    }
    apart(
        // As above.
        #[inline(always)]
        // SAFETY: the arguments have the types above.
        |which| unsafe { enqueued(ctx.arg(0), ctx.arg(1), Transport::Udp, which) },
    )
}

/// The packet that this CPU is about to enqueue. One is enough: the function runs with bottom halves off, whose place no
/// other packet takes on that CPU.
#[map]
static ENQUEUING: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// The same function as [`udp_enqueue_schedule_skb`], at its entry: at its exit nothing says what its arguments were.
#[kprobe]
fn udp_enqueue_entry_probe(ctx: ProbeContext) -> i32 {
    if let Some(place) = ENQUEUING.get_ptr_mut(0) {
        // SAFETY: this CPU's entry, which lives as long as the program.
        unsafe { *place = [first(&ctx) as u64, second(&ctx) as u64] };
    }
    0
}

/// The same at its exit. What it was entered with before the programs were attached is not known.
#[kretprobe]
fn udp_enqueue_exit_probe(ctx: RetProbeContext) -> i32 {
    let Some(place) = ENQUEUING.get_ptr_mut(0) else { return 0 };
    // SAFETY: as above.
    let [sock, skb] = unsafe { core::ptr::replace(place, [0; 2]) };
    let refused = returned(&ctx) as i32;
    if refused == 0 && skb != 0 {
        probed(Untyped(sock as *const u8), Untyped(skb as *const u8), Transport::Udp);
    }
    0
}

/// Tracepoint `sk_data_ready(const struct sock *sk)`, 6.3 and later: a socket tells its readers that something was queued. What
/// that was is the last of its queue. TCP holds the socket meanwhile, so it is; of UDP's a reader may have it already.
#[btf_tracepoint(function = "sk_data_ready")]
// It is too long for the compiler to do so unasked, and a call more.
#[inline(always)]
fn sk_data_ready(ctx: BtfTracePointContext) -> i32 {
    let sock: *const u8 = ctx.arg(0);
    // SAFETY: argument 0 is the socket.
    if !unsafe { is_internet(sock) } {
        return 0;
    }
    // Here, since the clock waits for whatever was asked of memory before it.
    let early = sample::early();
    // SAFETY: as above, and the verifier knows what the field points to.
    let (transport, skb) = unsafe { (transport_of(sock), SOCK_LAST.load(sock) as *const u8) };
    // SAFETY: as above.
    let empty = skb == unsafe { SOCK_RECEIVE_QUEUE.begins(sock) };
    match transport {
        // A listener has connections and no packets, and a connection may have something else to tell.
        Some(Transport::Tcp) if empty => 0,
        // SAFETY: as above.
        Some(Transport::Tcp) => apart(|which| unsafe { segment_queued(sock, skb, early, which) }),
        // SAFETY: as above.
        Some(Transport::Udp) if empty => apart(|which| unsafe { datagram_gone(sock, which) }),
        // SAFETY: as above.
        Some(Transport::Udp) => apart(|which| unsafe { datagram_queued(sock, skb, early, which) }),
        None => 0,
    }
}

/// The transport of an internet socket, of those that are measured: raw sockets may have either protocol.
///
/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
unsafe fn transport_of(sock: *const u8) -> Option<Transport> {
    // SAFETY: by the caller.
    unsafe {
        if tcp::is_connection(Typed::new(sock)) {
            Some(Transport::Tcp)
        } else if SOCK_TYPE.load(sock) == SOCK_DGRAM && SOCK_PROTOCOL.load(sock) == u16::from(IPPROTO_UDP) {
            Some(Transport::Udp)
        } else {
            None
        }
    }
}

/// The stamp of the packet that was told of last on this CPU.
#[map]
static TOLD: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Whether a connection has just told of the same packet: it tells twice of what kTLS passes on, and again of the last where a
/// segment finds no room.
#[inline(always)]
fn told_before(event: &PacketEvent) -> bool {
    let Some(last) = TOLD.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's entry, which lives as long as the program.
    unsafe { core::ptr::replace(last, event.stamp) == event.stamp }
}

/// A segment is in its connection's queue. Where it filled a gap, this is the last one of those that had waited for it, whose age
/// is the network's.
///
/// # Safety
/// Both are typed pointers, to a `sock` that is trusted and to an `sk_buff`.
#[inline(always)]
unsafe fn segment_queued(sock: *const u8, skb: *const u8, early: u64, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let packet = InSocket { sock: Typed::new(sock), skb: Typed::new(skb) };
        // By the socket: the verifier trusts it, and the kernel checks each load of the packet's.
        let network = peer_network(packet.sock);
        let count = Once(|| tcp::out_of_order_untrusted(sock));
        let until = || TCP_END.load(SKB_CONTROL.begins(skb));
        let event = PacketEvent::delivered_at(packet.skb, early);
        if matches!(&event, Ok(Some(event)) if told_before(event)) {
            return;
        }
        let blocked =
            // As for `slot`.
            #[inline(always)]
            move || head_of_line::blocked(sock, At::Arrival, count.take(), until);
        let once = Once(sock);
        let slot =
            // See `reached`.
            #[inline(always)]
            move || owner::slot_of_owner(once.take());
        reached_in_order(Layer::SocketEnqueued, network, &packet, event, which, blocked, slot);
    }
}

/// A datagram is in its socket's queue.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn datagram_queued(sock: *const u8, skb: *const u8, early: u64, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let packet = InSocket { sock: Typed::new(sock), skb: Typed::new(skb) };
        let network = if SKB_PROTOCOL.load(skb) == ETH_P_IPV6 { Network::Ipv6 } else { Network::Ipv4 };
        let once = Once(sock);
        let slot =
            // As above.
            #[inline(always)]
            move || owner::slot_of_owner(once.take());
        let event = PacketEvent::delivered_at(packet.skb, early);
        reached_over(Layer::SocketEnqueued, Transport::Udp, network, &packet, event, which, slot);
    }
}

/// A datagram was in its socket's queue, of which a reader has left nothing.
///
/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
unsafe fn datagram_gone(sock: *const u8, which: Which) {
    let reason = if which == Which::Chosen { PacketLoss::Unfiltered } else { PacketLoss::Unmatched };
    // SAFETY: by the caller.
    let network = peer_network(unsafe { Typed::new(sock) });
    latency::lost(Path::of(Layer::SocketEnqueued, Transport::Udp, network), reason, 1);
}
