//! Creation and reads of sockets, which determine a socket's owner.

use aya_ebpf::{
    macros::{btf_tracepoint, cgroup_sock, fexit},
    programs::{BtfTracePointContext, FExitContext, SockContext},
};
use undercurrent_ebpf::abi::workload::Slot;

use super::read::peer_ip_version;
use crate::{
    kernel::{
        context::Arguments as _,
        fields::{SOCK_FAMILY, SOCK_STATE, SOCKET_SOCK, Sock, Socket},
        owner,
        pointer::Ptr,
        tcp,
    },
    signals::tcp_rtt,
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// `MSG_PEEK`: the data stays in the queue for a later read.
const PEEK: i32 = 0x2;
/// `MSG_ERRQUEUE`: the data comes from the error queue and was sent by this host.
const ERROR_QUEUE: i32 = 0x2000;
const TCP_TIME_WAIT: u8 = 6;
const TCP_NEW_SYN_RECV: u8 = 12;

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

/// Returns true if a socket's family is IPv4 or IPv6.
#[inline(always)]
pub(super) fn is_inet(sock: Ptr<Sock>) -> bool {
    matches!(sock.read(&SOCK_FAMILY), AF_INET | AF_INET6)
}

/// Returns true for a full IPv4 or IPv6 socket; false for null, a request socket or a time-wait socket (the kernel's
/// `sk_fullsock`).
#[inline(always)]
pub(super) fn is_fullsock(sock: Ptr<Sock>) -> bool {
    // Some verifiers treat the argument as never null and remove this check; fields of null read as zero then.
    if sock.is_null() {
        return false;
    }
    is_inet(sock) && !matches!(sock.read(&SOCK_STATE), TCP_TIME_WAIT | TCP_NEW_SYN_RECV)
}

/// Returns the slot of a trusted socket's owner; `None` if it is no full IPv4 or IPv6 socket.
#[inline(always)]
pub(super) fn slot_of_owner(sock: Ptr<Sock>) -> Option<Slot> {
    if is_fullsock(sock) { Some(owner::slot_of_owner(sock)) } else { None }
}

/// `cgroup/sock_create`: a task creates an IPv4 or IPv6 socket. The program permits every socket.
#[cgroup_sock(sock_create)]
fn socket_created(ctx: SockContext) -> i32 {
    owner::created_by_current(&ctx);
    1
}
