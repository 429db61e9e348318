//! Copies to the application.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    macros::{btf_tracepoint, fentry},
    programs::{BtfTracePointContext, FEntryContext},
};
use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    workload::Slot,
};

use super::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, reached, reached_socket,
    subject::{Copied, InSocket, Read, Stream},
};
use crate::kernel::{
    event::{PacketEvent, Sampled},
    fields::{
        SCM_KTIME, SCM_NANOSECONDS, SCM_SECONDS, SKB_CONTROL, SKB_HEAD, SKB_NETWORK_HEADER, SKB_PROTOCOL, SKB_SK,
        SOCK_FAMILY, SOCK_PROTOCOL, SOCK_V6_DADDR, TCP_COPIED, TCP_END,
    },
    filter::{Subject, Which, apart},
    head_of_line, owner, sample, tcp,
};

const AF_INET6: u16 = 10;
const SECOND: u64 = 1_000_000_000;

/// `void tcp_recv_timestamp(struct msghdr *msg, const struct sock *sk, struct scm_timestamping_internal *tss)`, 5.10 to
/// 7.3. Once for each read that returned stamped data, with the stamp of the last byte.
#[fentry]
fn tcp_recv_timestamp(ctx: FEntryContext) -> i32 {
    // SAFETY: arguments 1 and 2 have the types above.
    apart(|which| unsafe { stream_read(ctx.arg(1), ctx.arg(2), which) })
}

/// # Safety
/// `sock` and `timestamps` are typed, a `struct sock *` and a `struct scm_timestamping_internal *`.
#[inline(always)]
unsafe fn stream_read(sock: *const u8, timestamps: *const u8, which: Which) {
    let early = sample::early();
    // SAFETY: by the caller; the read has moved the socket on.
    unsafe {
        let (network, event) = (peer_network(sock), PacketEvent::stamped(stamp(timestamps), early));
        let blocked = || head_of_line::blocked(sock, || tcp::out_of_order(sock), || TCP_COPIED.probe(sock));
        read_by_tcp(network, &Stream(sock), event, blocked, which, owner::slot_of_current);
    }
}

/// TCP data was read, which may have waited for the network.
#[inline(always)]
fn read_by_tcp(
    network: Network,
    packet: &impl Subject,
    event: Sampled,
    blocked: impl FnOnce() -> bool,
    which: Which,
    slot: impl FnOnce() -> Slot,
) {
    let event = event.map(|event| event.map(|event| PacketEvent { blocked: blocked(), ..event }));
    // A branch for each version, so that each has its histogram at a constant offset.
    match network {
        Network::Ipv4 => {
            reached(Path::of(Layer::SocketRead, Transport::Tcp, Network::Ipv4), packet, event, which, slot)
        }
        Network::Ipv6 => {
            reached(Path::of(Layer::SocketRead, Transport::Tcp, Network::Ipv6), packet, event, which, slot)
        }
    }
}

/// The receive timestamp that a read returns, in nanoseconds.
///
/// # Safety
/// `timestamps` is a typed `struct scm_timestamping_internal *`.
#[inline(always)]
unsafe fn stamp(timestamps: *const u8) -> u64 {
    // SAFETY: by the caller; a kernel has either the first two fields or the last as a number.
    unsafe {
        if SCM_SECONDS.present() {
            SCM_SECONDS.load(timestamps).wrapping_mul(SECOND).wrapping_add(SCM_NANOSECONDS.load(timestamps))
        } else {
            SCM_KTIME.load(timestamps)
        }
    }
}

/// The IP version that a socket's packets have, which on a dual-stack socket is not its family.
///
/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
pub(super) unsafe fn peer_network(sock: *const u8) -> Network {
    // SAFETY: by the caller, and the second field is checked for.
    unsafe {
        if SOCK_FAMILY.load(sock) != AF_INET6 || !SOCK_V6_DADDR.present() {
            return Network::Ipv4;
        }
        let [high, low] = SOCK_V6_DADDR.load(sock);
        let mapped = high == 0 && u64::from_be(low) >> 32 == 0xffff;
        if mapped { Network::Ipv4 } else { Network::Ipv6 }
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
    let skb = ctx.arg(1);
    let packet = Read(InSocket { sock: ctx.arg(0), skb });
    // SAFETY: the arguments have the types above.
    apart(|which| unsafe {
        reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, which, owner::slot_of_current)
    })
}

/// Tracepoint `skb_copy_datagram_iovec(const struct sk_buff *skb, int len)`: a packet's bytes are copied out. Small
/// datagrams, and those whose checksum is verified while they are copied, take another way.
#[btf_tracepoint(function = "skb_copy_datagram_iovec")]
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
    // SAFETY: by the caller, and the verifier knows what `sk_buff.sk` points to.
    unsafe {
        let sock = SKB_SK.load(skb) as *const u8;
        let slot = || owner::slot_of_reader(sock);
        match transport_of(skb, sock, protocol) {
            Some(Transport::Tcp) => {
                let network = if protocol == ETH_P_IPV6 { Network::Ipv6 } else { Network::Ipv4 };
                let event = PacketEvent::delivered(skb, sample::early());
                // Raw sockets read TCP's packets too.
                let count = || if sock.is_null() { 0 } else { tcp::out_of_order_untrusted(sock) };
                let read = || TCP_END.load(SKB_CONTROL.begins(skb));
                let blocked = || head_of_line::blocked(sock, count, read);
                read_by_tcp(network, &Copied(skb), event, blocked, which, slot);
            }
            Some(Transport::Udp) => reached_socket(skb, &Copied(skb), Layer::SocketRead, Transport::Udp, which, slot),
            None => {}
        }
    }
}

/// The transport protocol of a packet: its socket's, which is two typed loads, or else its IP header's, which takes a
/// helper.
///
/// # Safety
/// Both are typed pointers, to an `sk_buff` and to its socket, or null.
#[inline(always)]
unsafe fn transport_of(skb: *const u8, sock: *const u8, protocol: u16) -> Option<Transport> {
    if !matches!(protocol, ETH_P_IP | ETH_P_IPV6) {
        return None;
    }
    if sock.is_null() {
        // SAFETY: by the caller.
        return unsafe { transport_in_header(skb, protocol) };
    }
    // SAFETY: the verifier knows what `sk_buff.sk` points to.
    transport(unsafe { SOCK_PROTOCOL.load(sock) })
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
    match u8::try_from(number) {
        Ok(IPPROTO_TCP) => Some(Transport::Tcp),
        Ok(IPPROTO_UDP) => Some(Transport::Udp),
        _ => None,
    }
}
