//! Copies to the application.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    macros::{btf_tracepoint, fentry, kprobe},
    programs::{BtfTracePointContext, FEntryContext, ProbeContext},
};
use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Transport},
    loss::PacketLoss,
    workload::Slot,
};

use super::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, Once,
    arguments::{first, second, third},
    reached_in_order, reached_over, reached_socket,
    subject::{Copied, InSocket, Read, Stream},
};
use crate::{
    kernel::{
        event::PacketEvent,
        fields::{
            SCM_KTIME, SCM_NANOSECONDS, SCM_SECONDS, SKB_CONTROL, SKB_HEAD, SKB_NETWORK_HEADER, SKB_PROTOCOL, SKB_SK,
            SOCK_FAMILY, SOCK_PROTOCOL, SOCK_V6_DADDR, TCP_COPIED, TCP_END,
        },
        filter::{Which, apart},
        head_of_line::{self, At},
        owner,
        pointer::{Pointer, Typed, Untyped},
        sample, tcp,
    },
    signals::tcp_rtt,
};

const AF_INET6: u16 = 10;
const SECOND: u64 = 1_000_000_000;

/// `void tcp_recv_timestamp(struct msghdr *msg, const struct sock *sk, struct scm_timestamping_internal *tss)`, 5.10 to
/// 7.3. Once for each read that returned stamped data, with the stamp of the last byte.
#[fentry]
// It is too long for the compiler to do so unasked, and a call more.
#[inline(always)]
fn tcp_recv_timestamp(ctx: FEntryContext) -> i32 {
    apart(
        // Inlined at once, or the compiler makes one code of both cases again.
        #[inline(always)]
        // SAFETY: arguments 1 and 2 have the types above.
        |which| unsafe { stream_read_by_current(ctx.arg(1), Typed::new(ctx.arg(2)), which) },
    )
}

/// The current task has read a socket, which makes it the socket's reader, and a `scm_timestamping_internal` is returned with
/// the data. Of reads that the sample leaves out nothing more is asked.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`, and no raw socket.
#[inline(always)]
unsafe fn stream_read_by_current(sock: *const u8, timestamps: Typed, which: Which) {
    let early = sample::early();
    let event = PacketEvent::stamped(stamp(timestamps), early);
    // SAFETY: by the caller.
    let packet = Stream(unsafe { Typed::new(sock) });
    let event = match event {
        Ok(Some(event)) => event,
        Ok(None) => return,
        // There is no other loss. Verifiers before 6.12 want to see which.
        Err(_) => {
            let lost = Err(PacketLoss::NoStamp);
            return reached_over(
                Layer::SocketRead,
                Transport::Tcp,
                peer_network(packet.0),
                &packet,
                lost,
                which,
                || Slot::NODE,
            );
        }
    };
    let network = peer_network(packet.0);
    // SAFETY: by the caller; the read has moved the socket on.
    unsafe {
        let (slot, connection) = (owner::slot_of_new_reader(sock), tcp::of_stream(sock));
        tcp_rtt::read(|| tcp::rtt(connection?), || network, event.weight, || slot);
        let count = || connection.map_or(0, |connection| tcp::out_of_order(connection));
        let blocked = head_of_line::blocked(sock, At::Read, count, || TCP_COPIED.probe(sock));
        reached_over(
            Layer::SocketRead,
            Transport::Tcp,
            network,
            &packet,
            Ok(Some(PacketEvent { blocked, ..event })),
            which,
            || slot,
        );
    }
}

/// The same function as [`tcp_recv_timestamp`].
#[kprobe]
fn tcp_recv_timestamp_probe(ctx: ProbeContext) -> i32 {
    let (sock, timestamps) = (Untyped(second(&ctx)), Untyped(third(&ctx)));
    let early = sample::early();
    let (network, event) = (peer_network(sock), PacketEvent::stamped(stamp(timestamps), early));
    let blocked = || head_of_line::may_be_blocked(sock);
    let slot = owner::slot_of_current;
    reached_in_order(Layer::SocketRead, network, &Stream(sock), event, Which::Chosen, blocked, slot);
    0
}

/// The receive timestamp that a read returns, a `scm_timestamping_internal`, in nanoseconds.
#[inline(always)]
fn stamp(timestamps: impl Pointer) -> u64 {
    // A kernel has either the first two fields or the last as a number.
    if SCM_SECONDS.present() {
        timestamps.read(&SCM_SECONDS).wrapping_mul(SECOND).wrapping_add(timestamps.read(&SCM_NANOSECONDS))
    } else {
        timestamps.read(&SCM_KTIME)
    }
}

/// The IP version that the packets of a `sock` have, which on a dual-stack socket is not its family.
#[inline(always)]
pub(super) fn peer_network(sock: impl Pointer) -> Network {
    if sock.read(&SOCK_FAMILY) != AF_INET6 || !SOCK_V6_DADDR.present() {
        return Network::Ipv4;
    }
    let [high, low] = sock.read(&SOCK_V6_DADDR);
    let mapped = high == 0 && u64::from_be(low) >> 32 == 0xffff;
    if mapped { Network::Ipv4 } else { Network::Ipv6 }
}

/// `void skb_consume_udp(struct sock *sk, struct sk_buff *skb, int len)`, 5.10 to 7.3. A negative length is a peek or an
/// error.
#[fentry]
fn skb_consume_udp(ctx: FEntryContext) -> i32 {
    let length: i32 = ctx.arg(2);
    if length < 0 {
        return 0;
    }
    apart(
        // As above.
        #[inline(always)]
        // SAFETY: arguments 0 and 1 have the types above.
        |which| unsafe { datagram_read_by_current(ctx.arg(0), Typed::new(ctx.arg(1)), which) },
    )
}

/// The current task has read a `sk_buff` from a socket, which makes it the socket's reader; left out as above.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`.
#[inline(always)]
unsafe fn datagram_read_by_current(sock: *const u8, skb: Typed, which: Which) {
    // SAFETY: by the caller.
    let packet = Read(InSocket { sock: unsafe { Typed::new(sock) }, skb });
    // SAFETY: by the caller.
    let slot = move || unsafe { owner::slot_of_new_reader(sock) };
    reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, which, slot);
}

/// The same function as [`skb_consume_udp`].
#[kprobe]
fn skb_consume_udp_probe(ctx: ProbeContext) -> i32 {
    if third(&ctx) as i32 >= 0 {
        let (sock, skb) = (Untyped(first(&ctx)), Untyped(second(&ctx)));
        let packet = Read(InSocket { sock, skb });
        reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, Which::Chosen, owner::slot_of_current);
    }
    0
}

/// Tracepoint `skb_copy_datagram_iovec(const struct sk_buff *skb, int len)`: a packet's bytes are copied out. Small
/// datagrams, and those whose checksum is verified while they are copied, take another way.
#[btf_tracepoint(function = "skb_copy_datagram_iovec")]
// As above.
#[inline(always)]
fn skb_copy_datagram_iovec(ctx: BtfTracePointContext) -> i32 {
    let skb: *const u8 = ctx.arg(0);
    // SAFETY: argument 0 is the `sk_buff`.
    let protocol = unsafe { SKB_PROTOCOL.load(skb) };
    // SAFETY: as above.
    apart(|which| unsafe { copied(skb, protocol, which) })
}

/// # Safety
/// `skb` is a typed `sk_buff` pointer, with this Ethertype.
#[inline(always)]
unsafe fn copied(skb: *const u8, protocol: u16, which: Which) {
    if !matches!(protocol, ETH_P_IP | ETH_P_IPV6) {
        return;
    }
    // SAFETY: by the caller, and the verifier knows what `sk_buff.sk` points to.
    unsafe {
        let sock = SKB_SK.load(skb) as *const u8;
        // The socket's, which is two typed loads, or else the IP header's, which takes a helper.
        let transport =
            if sock.is_null() { transport_in_header(skb, protocol) } else { transport(SOCK_PROTOCOL.load(sock)) };
        let once = Once(sock);
        let slot =
            // See `reached`.
            #[inline(always)]
            move || owner::slot_of_reader(once.take());
        let skb = Typed::new(skb);
        match transport {
            Some(Transport::Tcp) => {
                let network = if protocol == ETH_P_IPV6 { Network::Ipv6 } else { Network::Ipv4 };
                // Raw sockets read TCP's packets too.
                let count = Once(|| if sock.is_null() { 0 } else { tcp::out_of_order_untrusted(sock) });
                let read = || TCP_END.load(SKB_CONTROL.begins(skb.address()));
                let blocked =
                    // As above.
                    #[inline(always)]
                    move || head_of_line::blocked(sock, At::Read, count.take(), read);
                let event = PacketEvent::delivered(skb);
                reached_in_order(Layer::SocketRead, network, &Copied(skb), event, which, blocked, slot);
            }
            Some(Transport::Udp) => reached_socket(skb, &Copied(skb), Layer::SocketRead, Transport::Udp, which, slot),
            None => {}
        }
    }
}

/// The transport protocol that a packet's IP header names.
///
/// # Safety
/// As for [`transport_of`].
#[inline(always)]
pub(super) unsafe fn transport_in_header(skb: *const u8, protocol: u16) -> Option<Transport> {
    let position = match protocol {
        ETH_P_IP => 9,
        ETH_P_IPV6 => 6,
        _ => return None,
    };
    // SAFETY: by the caller.
    let header = unsafe { SKB_HEAD.load(skb) + u64::from(SKB_NETWORK_HEADER.load(skb)) };
    // SAFETY: the helper checks the address itself.
    let number: u8 = unsafe { bpf_probe_read_kernel((header + position) as *const u8) }.ok()?;
    transport(number.into())
}

/// The transport protocol of a number.
#[inline(always)]
pub(super) fn transport(number: u16) -> Option<Transport> {
    const TCP: u16 = IPPROTO_TCP as u16;
    const UDP: u16 = IPPROTO_UDP as u16;
    match number {
        TCP => Some(Transport::Tcp),
        UDP => Some(Transport::Udp),
        _ => None,
    }
}
