//! Creation and reads of sockets, which determine a socket's owner.

use super::socket::{is_inet, peer_ip_version};
use crate::{
    kernel::{
        context::Arguments as _,
        fields::{SOCKET_SOCK, Sock, Socket},
        owner,
        pointer::Ptr,
        tcp::{self, state},
    },
    signals::tcp_rtt,
};
use aya_ebpf::{
    macros::{btf_tracepoint, cgroup_sock, cgroup_sock_addr, fexit},
    programs::{BtfTracePointContext, FExitContext, SockAddrContext, SockContext},
};

/// `MSG_PEEK`: the data stays in the queue for a later read.
const PEEK: i32 = 0x2;
/// `MSG_ERRQUEUE`: the data comes from the error queue and was sent by this host.
const ERROR_QUEUE: i32 = 0x2000;

/// Tracepoint `sock_recv_length(struct sock *sk, int ret, int flags)`, 6.3 and later: the end of a read.
#[btf_tracepoint(function = "sock_recv_length")]
fn sock_recv_length(ctx: BtfTracePointContext) -> i32 {
    let (length, flags): (i32, i32) = (ctx.arg(1), ctx.arg(2));
    if length > 0 && flags & ERROR_QUEUE == 0 {
        read(ctx.pointer(0), flags);
    }
    0
}

/// `int sock_recvmsg(struct socket *sock, struct msghdr *msg, int flags)`, 5.10 to 7.3: the end of a read. At exit, because a
/// call without data does not make the task a reader.
#[fexit]
fn sock_recvmsg(ctx: FExitContext) -> i32 {
    // The word after the three arguments is the return value. `bpf_get_func_ret` requires 5.17.
    let length = ctx.word(3) as i32;
    let flags: i32 = ctx.arg(2);
    if length > 0 && flags & ERROR_QUEUE == 0 {
        let socket: Ptr<Socket> = ctx.pointer(0);
        read(socket.follow(&SOCKET_SOCK), flags);
    }
    0
}

#[inline(always)]
fn read(sock: Ptr<Sock>, flags: i32) {
    if !is_inet(sock) {
        return;
    }
    let reader = if flags & PEEK == 0 { owner::read_by_current(sock) } else { owner::current() };
    tcp_rtt::read(|| tcp::smoothed_rtt(sock), || peer_ip_version(sock), 1, || owner::or_node(|| owner::slot(reader)));
}

/// Tracepoint `inet_sock_set_state(const struct sock *sk, const int oldstate, const int newstate)`, 5.10 to 7.3: the task of the system
/// call `listen` or `connect` enters these states. An accepted connection inherits the owner of its listener.
#[btf_tracepoint(function = "inet_sock_set_state")]
fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    let entered: i32 = ctx.arg(2);
    if matches!(entered as u8, state::SYN_SENT | state::LISTEN) {
        owner::opened_by_current(ctx.pointer(0));
    }
    0
}

/// `cgroup/sock_create`: a task creates an IPv4 or IPv6 socket. The program permits every socket.
#[cgroup_sock(sock_create)]
fn socket_created(ctx: SockContext) -> i32 {
    owner::created_by_current(&ctx);
    1
}

/// `cgroup/recvmsg4`: a task has read a datagram over IPv4 with its sender's address. The program changes nothing.
#[cgroup_sock_addr(recvmsg4)]
fn datagram_read(ctx: SockAddrContext) -> i32 {
    owner::datagram_read_by_current(&ctx);
    1
}

/// `cgroup/recvmsg6`: as [`datagram_read`] over IPv6.
#[cgroup_sock_addr(recvmsg6)]
fn datagram_read_ipv6(ctx: SockAddrContext) -> i32 {
    owner::datagram_read_by_current(&ctx);
    1
}
