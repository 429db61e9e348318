//! Copies to the application.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel,
    macros::{btf_tracepoint, fentry},
    programs::{BtfTracePointContext, FEntryContext},
};
use undercurrent_ebpf::abi::latency::{Layer, Network, Path, Transport};

use super::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP, reached, reached_socket,
    subject::{Copied, InSocket, Read, Stream},
};
use crate::kernel::{
    event::PacketEvent,
    fields::{
        SCM_KTIME, SCM_NANOSECONDS, SCM_SECONDS, SKB_HEAD, SKB_NETWORK_HEADER, SKB_PROTOCOL, SKB_SK, SOCK_FAMILY,
        SOCK_PROTOCOL, SOCK_V6_DADDR,
    },
    owner, sample,
};

const AF_INET6: u16 = 10;
const SECOND: u64 = 1_000_000_000;

/// `void tcp_recv_timestamp(struct msghdr *msg, const struct sock *sk, struct scm_timestamping_internal *tss)`, 5.10 to
/// 7.3. Once for each read that returned stamped data, with the stamp of the last byte.
#[fentry]
fn tcp_recv_timestamp(ctx: FEntryContext) -> i32 {
    let early = sample::early();
    // SAFETY: arguments 1 and 2 have the types above.
    let (network, stamp) = unsafe { (peer_network(ctx.arg(1)), stamp(ctx.arg(2))) };
    let (stream, event) = (Stream(ctx.arg(1)), PacketEvent::stamped(stamp, early));
    // A branch for each version, so that each has its histogram at a constant offset.
    match network {
        Network::Ipv4 => reached(read_from(Transport::Tcp, Network::Ipv4), &stream, event, owner::slot_of_current),
        Network::Ipv6 => reached(read_from(Transport::Tcp, Network::Ipv6), &stream, event, owner::slot_of_current),
    }
    0
}

const fn read_from(transport: Transport, network: Network) -> Path {
    Path::of(Layer::SocketRead, transport, network)
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
    if length >= 0 {
        let early = sample::early();
        let skb = ctx.arg(1);
        let packet = Read(InSocket { sock: ctx.arg(0), skb });
        // SAFETY: the arguments have the types above.
        unsafe { reached_socket(skb, &packet, Layer::SocketRead, Transport::Udp, early, owner::slot_of_current) };
    }
    0
}

/// Tracepoint `skb_copy_datagram_iovec(const struct sk_buff *skb, int len)`: a packet's bytes are copied out. Small
/// datagrams, and those whose checksum is verified while they are copied, take another way.
#[btf_tracepoint(function = "skb_copy_datagram_iovec")]
fn skb_copy_datagram_iovec(ctx: BtfTracePointContext) -> i32 {
    let early = sample::early();
    let skb: *const u8 = ctx.arg(0);
    // SAFETY: argument 0 is the `sk_buff`.
    let protocol = unsafe { SKB_PROTOCOL.load(skb) };
    // SAFETY: as above.
    if let Some(transport) = unsafe { transport_of(skb, protocol) } {
        // SAFETY: as above.
        let slot = || unsafe { owner::slot_of_reader(SKB_SK.load(skb) as _) };
        // SAFETY: as above.
        unsafe { reached_socket(skb, &Copied(skb), Layer::SocketRead, transport, early, slot) };
    }
    0
}

/// The transport protocol of a packet: its socket's, which is two typed loads, or else its IP header's, which takes a
/// helper.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn transport_of(skb: *const u8, protocol: u16) -> Option<Transport> {
    if !matches!(protocol, ETH_P_IP | ETH_P_IPV6) {
        return None;
    }
    // SAFETY: by the caller.
    let sock = unsafe { SKB_SK.load(skb) } as *const u8;
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
