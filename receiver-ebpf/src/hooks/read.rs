//! Copies to the application.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, kprobe},
    programs::{BtfTracePointContext, FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, Transport},
    loss::PacketLoss,
    workload::Slot,
};

use super::{
    ETH_P_IP, ETH_P_IPV6,
    arguments::{first, second, third},
    data_waited, reached_in_order, reached_over, reached_socket,
    socket::{peer_ip_version, transport},
    subject::{Copied, InSocket, Read, Stream},
};
use crate::{
    kernel::{
        context::Arguments as _,
        event::PacketEvent,
        fields::{
            MsgHdr, SCM_KTIME, SCM_NANOSECONDS, SCM_SECONDS, SKB_CB, SKB_DEV_SCRATCH, SKB_DEVICE, SKB_PROTOCOL, SKB_SK,
            SOCK_PROTOCOL, ScmTimestamping, SkBuff, Sock, TCP_COPIED, TCP_END, TcpSock,
        },
        filter::{FilterMode, specialize},
        head_of_line::{self, At},
        owner::{self, or_node},
        pointer::{Access, Ptr},
        served, tcp,
        unread::{self, NONE, Reading, Segment, Taken},
        workarounds::Once,
    },
    signals::{receive_wait, tcp_rtt},
};

const SECOND: u64 = 1_000_000_000;

/// `void tcp_recv_timestamp(struct msghdr *msg, const struct sock *sk, struct scm_timestamping_internal *tss)`, 5.10 to
/// 7.3: runs once for each read that returned data with a timestamp, with the timestamp of the last byte.
#[fentry]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn tcp_recv_timestamp(ctx: FEntryContext) -> i32 {
    specialize!(|mode| stream_read_by_current(ctx.pointer(0), ctx.pointer(1), ctx.pointer(2), mode))
}

/// Handles a read of a connection by the current task, which becomes the socket's reader. The socket is trusted and not raw.
#[inline(always)]
fn stream_read_by_current(message: Ptr<MsgHdr>, sock: Ptr<Sock>, timestamps: Ptr<ScmTimestamping>, mode: FilterMode) {
    let event = PacketEvent::now(|| timestamp(timestamps));
    let connection = tcp::of_stream(sock);
    let early = if let Ok(Some(event)) = &event { event.now } else { 0 };
    // A read of Multipath TCP has no wait: the data arrived at a subflow.
    let Reading { wait, last } =
        if connection.is_some() { receive_wait::data_read(sock, &Taken(sock), early) } else { Reading::of(NONE) };
    let packet = Stream(sock, message.probed(), last);
    // Every word is set, or the verifier rejects the program.
    let (event, is_measured) = match event {
        Ok(Some(event)) => (event, true),
        Ok(None) => (PacketEvent::EMPTY, false),
        // The only loss here. It is a constant because verifiers before 6.12 lose the bounds of the variable.
        Err(_) => {
            let (version, lost) = (peer_ip_version(sock), Err(PacketLoss::NoTimestamp));
            reached_over(Layer::SocketRead, Transport::Tcp, version, &packet, lost, mode, || Slot::NODE);
            (PacketEvent::EMPTY, false)
        }
    };
    if !is_measured && wait == NONE {
        return owner::learn_reader(sock);
    }
    let (version, slot) = (peer_ip_version(sock), owner::slot_of_new_reader(sock));
    data_waited(wait, version, &packet, mode, slot);
    if !is_measured {
        return;
    }
    tcp_rtt::read(|| tcp::rtt(connection?), || version, event.weight, || slot);
    let count = || connection.map_or(0, tcp::out_of_order);
    let until = || sock.probed().cast::<TcpSock>().read(&TCP_COPIED);
    let blocked = head_of_line::blocked(sock, At::Read, count, until);
    let event = Ok(Some(PacketEvent { blocked, ..event }));
    reached_over(Layer::SocketRead, Transport::Tcp, version, &packet, event, mode, || slot);
}

/// [`tcp_recv_timestamp`] by kprobe.
#[kprobe]
fn tcp_recv_timestamp_probe(ctx: ProbeContext) -> i32 {
    let sock = Ptr::<Sock, _>::at(second(&ctx));
    let event = PacketEvent::now(|| timestamp(Ptr::at(third(&ctx))));
    let (version, blocked) = (peer_ip_version(sock), || head_of_line::may_be_blocked(sock));
    let packet = Stream(sock, Ptr::at(first(&ctx)), Segment::NONE);
    let slot = owner::slot_of_current;
    reached_in_order(Layer::SocketRead, version, &packet, event, FilterMode::On, blocked, slot);
    0
}

/// Returns the receive timestamp that a read returns, in nanoseconds of the wall clock.
#[inline(always)]
fn timestamp<A: Access>(timestamps: Ptr<ScmTimestamping, A>) -> u64 {
    // Kernels have the first two fields (up to 7.1) or the last one as a number.
    match timestamps.get(&SCM_SECONDS) {
        Some(seconds) => seconds.wrapping_mul(SECOND).wrapping_add(timestamps.read(&SCM_NANOSECONDS)),
        None => timestamps.read(&SCM_KTIME),
    }
}

/// `void skb_consume_udp(struct sock *sk, struct sk_buff *skb, int len)`, 5.10 to 7.3. A negative length is a peek or an
/// error.
#[fentry]
fn skb_consume_udp(ctx: FEntryContext) -> i32 {
    let length: i32 = ctx.arg(2);
    if length < 0 {
        return 0;
    }
    specialize!(|mode| datagram_read_by_current(ctx.pointer(0), ctx.pointer(1), mode))
}

/// Handles a read of a datagram by the current task, which becomes the socket's reader. The socket is trusted.
#[inline(always)]
fn datagram_read_by_current(sock: Ptr<Sock>, skb: Ptr<SkBuff>, mode: FilterMode) {
    let packet = Read(InSocket { sock, skb });
    let slot = move || owner::slot_of_new_reader(sock);
    reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, mode, slot);
}

/// [`skb_consume_udp`] by kprobe.
#[kprobe]
fn skb_consume_udp_probe(ctx: ProbeContext) -> i32 {
    if third(&ctx) as i32 >= 0 {
        let (sock, skb) = (Ptr::at(first(&ctx)), Ptr::at(second(&ctx)));
        let packet = Read(InSocket { sock, skb });
        let slot = owner::slot_of_current;
        reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, FilterMode::On, slot);
    }
    0
}

/// Tracepoint `skb_copy_datagram_iovec(const struct sk_buff *skb, int len)`: the bytes of a packet are copied out. Linear
/// datagrams, and datagrams with their checksum verified during the copy, take another path.
#[btf_tracepoint(function = "skb_copy_datagram_iovec")]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn skb_copy_datagram_iovec(ctx: BtfTracePointContext) -> i32 {
    let skb: Ptr<SkBuff> = ctx.pointer(0);
    let protocol = skb.read(&SKB_PROTOCOL);
    specialize!(|mode| copied(skb, ctx.arg(1), protocol, mode))
}

/// Handles a number of bytes that are copied from a packet with its Ethertype.
#[inline(always)]
fn copied(skb: Ptr<SkBuff>, bytes: u32, protocol: u16, mode: FilterMode) {
    if !matches!(protocol, ETH_P_IP | ETH_P_IPV6) {
        return;
    }
    let sock = skb.follow(&SKB_SK);
    let transport = match sock.is_null() {
        true => is_queued_by_udp(skb).then_some(Transport::Udp),
        // TCP removes the device before it queues a packet. Other queues have packets with the socket of the sender.
        false if skb.follow(&SKB_DEVICE).is_null() => transport(sock.read(&SOCK_PROTOCOL)),
        false => None,
    };
    let once = Once(sock);
    let slot =
        // See `reached`.
        #[inline(always)]
        move || owner::slot_of_reader(once.take());
    match transport {
        Some(Transport::Tcp) => {
            let version = if protocol == ETH_P_IPV6 { IpVersion::Ipv6 } else { IpVersion::Ipv4 };
            let count = Once(|| tcp::out_of_order_untrusted(sock));
            let until = || skb.embedded(&SKB_CB).read(&TCP_END);
            let blocked =
                // See `reached`.
                #[inline(always)]
                move || head_of_line::blocked(sock, At::Read, count.take(), until);
            let event = PacketEvent::delivered(skb);
            let early = if let Ok(Some(event)) = &event { event.now } else { 0 };
            let Reading { wait, last } = receive_wait::data_read(sock, &unread::Copied(sock, skb, bytes), early);
            let tells_reader = served::copies_tell_readers();
            if matches!(event, Ok(None)) && wait == NONE {
                if tells_reader {
                    owner::learn_reader(sock);
                }
                return;
            }
            let slot = if tells_reader { owner::slot_of_new_reader(sock) } else { or_node(slot) };
            if tells_reader && let Ok(Some(event)) = &event {
                tcp_rtt::read(|| tcp::smoothed_rtt(sock), || version, event.weight, || slot);
            }
            let packet = Copied(skb, last);
            data_waited(wait, version, &packet, mode, slot);
            reached_in_order(Layer::SocketRead, version, &packet, event, mode, blocked, || slot);
        }
        Some(Transport::Udp) => {
            reached_socket(skb, &Copied(skb, Segment::NONE), Layer::SocketRead, Transport::Udp, mode, slot)
        }
        None => {}
    }
}

/// Returns true if a packet without a socket is in a receive queue of UDP. The readers of tun, tap and macvtap devices copy
/// packets out of the queue of a device. UDP stores other data in the place of the device, whose top bit is never set; the address
/// of a device has it.
#[inline(always)]
fn is_queued_by_udp(skb: Ptr<SkBuff>) -> bool {
    skb.probed().get(&SKB_DEV_SCRATCH).is_none_or(|scratch| scratch.cast_signed() > 0)
}
