//! Connection attempts at a listening TCP socket.

use aya_ebpf::{macros::fentry, programs::FEntryContext};

use super::ETH_P_IP;
use crate::{
    kernel::{
        context::Arguments as _,
        fields::{SKB_PROTOCOL, SOCK_ACCEPT_QUEUE, SOCK_ACCEPT_QUEUE_LIMIT, SkBuff, Sock},
        owner,
        pointer::Ptr,
    },
    signals::tcp_listen_overflows,
};

/// Counts an attempt if the accept queue is full (`sk_acceptq_is_full`): the function then drops the attempt.
#[inline(always)]
fn attempted(listener: Ptr<Sock>) -> i32 {
    if listener.read(&SOCK_ACCEPT_QUEUE) > listener.read(&SOCK_ACCEPT_QUEUE_LIMIT) {
        tcp_listen_overflows::dropped(owner::slot_of_owner(listener));
    }
    0
}

/// `int tcp_conn_request(struct request_sock_ops *rsk_ops, const struct tcp_request_sock_ops *af_ops, struct sock *sk, struct
/// sk_buff *skb)`, 5.10 to 7.3: the first segment of a handshake. Without SYN cookies a full queue of requests drops the
/// segment first.
#[fentry]
fn tcp_conn_request(ctx: FEntryContext) -> i32 {
    attempted(ctx.pointer(2))
}

/// `struct sock *tcp_v4_syn_recv_sock(const struct sock *sk, struct sk_buff *skb, ...)`, 5.10 to 7.3: the last segment of a
/// handshake.
#[fentry]
fn tcp_v4_syn_recv_sock(ctx: FEntryContext) -> i32 {
    attempted(ctx.pointer(0))
}

/// `struct sock *tcp_v6_syn_recv_sock(const struct sock *sk, struct sk_buff *skb, ...)`, 5.10 to 7.3: calls the function for
/// IPv4 if the segment is IPv4's.
#[fentry]
fn tcp_v6_syn_recv_sock(ctx: FEntryContext) -> i32 {
    let skb: Ptr<SkBuff> = ctx.pointer(1);
    if skb.read(&SKB_PROTOCOL) == ETH_P_IP { 0 } else { attempted(ctx.pointer(0)) }
}
