//! Retransmissions of TCP.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use super::socket::peer_ip_version;
use crate::{
    kernel::{
        constant::constants,
        context::Arguments as _,
        fields::{SKB_CB, SkBuff, Sock, TCP_SEGMENTS},
        owner,
        pointer::Ptr,
    },
    signals::tcp_retransmits,
};

constants! {
    /// Number of arguments of the running kernel's tracepoint.
    ARGUMENTS = "arguments.tcp_retransmit_skb";
}

/// Tracepoint `tcp_retransmit_skb(const struct sock *sk, const struct sk_buff *skb)`, 5.10 and later, after a
/// retransmission. 6.18 has a third argument `int err`, and the tracepoint fires for failed retransmissions too.
#[btf_tracepoint(function = "tcp_retransmit_skb")]
fn tcp_retransmit_skb(ctx: BtfTracePointContext) -> i32 {
    let failed = ARGUMENTS.get() > 2 && ctx.word(2) as i32 != 0;
    if !failed {
        let skb: Ptr<SkBuff> = ctx.pointer(1);
        sent_again(ctx.pointer(0), ctx.pointer(0), skb.embedded(&SKB_CB).read(&TCP_SEGMENTS).into());
    }
    0
}

/// Tracepoint `tcp_retransmit_synack(const struct sock *sk, const struct request_sock *req)`, 5.10 to 7.3: a listening
/// socket sends the second segment of a handshake again.
#[btf_tracepoint(function = "tcp_retransmit_synack")]
fn tcp_retransmit_synack(ctx: BtfTracePointContext) -> i32 {
    sent_again(ctx.pointer(0), ctx.pointer(1), 1);
    0
}

/// Counts segments of `sock`, which is trusted. `peer` has the peer's address: it is a `sock`, or a `request_sock`, which
/// also begins with a `sock_common`.
#[inline(always)]
fn sent_again(sock: Ptr<Sock>, peer: Ptr<Sock>, segments: u64) {
    tcp_retransmits::sent_again(peer_ip_version(peer), segments, || owner::slot_of_owner(sock));
}
