//! Who makes sockets, and who reads them: where data is delivered.

use aya_ebpf::{
    EbpfContext as _,
    macros::{btf_tracepoint, cgroup_sock, fexit},
    programs::{BtfTracePointContext, FExitContext, SockContext},
};
use undercurrent_ebpf::abi::workload::Slot;

use super::read::peer_network;
use crate::{
    kernel::{
        fields::{SOCK_FAMILY, SOCK_STATE, SOCKET_SOCK},
        owner,
        pointer::Typed,
        tcp,
    },
    signals::tcp_rtt,
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// `MSG_PEEK`: who peeks leaves the data to its reader.
const PEEK: i32 = 0x2;
/// `MSG_ERRQUEUE`: what comes from the queue of errors was sent from here.
const ERRORS: i32 = 0x2000;
const TCP_TIME_WAIT: u8 = 6;
const TCP_NEW_SYN_RECV: u8 = 12;

/// Tracepoint `sock_recv_length(struct sock *sk, int ret, int flags)`, 6.3 and later: a read ends.
#[btf_tracepoint(function = "sock_recv_length")]
fn sock_recv_length(ctx: BtfTracePointContext) -> i32 {
    let (length, flags): (i32, i32) = (ctx.arg(1), ctx.arg(2));
    if length > 0 && flags & ERRORS == 0 {
        // SAFETY: argument 0 is the socket.
        unsafe { read(ctx.arg(0), flags) };
    }
    0
}

/// `int sock_recvmsg(struct socket *sock, struct msghdr *msg, int flags)`, 5.10 to 7.3: a read ends. At its exit, since
/// who waits in vain is no reader.
#[fexit]
fn sock_recvmsg(ctx: FExitContext) -> i32 {
    // SAFETY: the word after the three arguments is the return value; `bpf_get_func_ret` would need 5.17.
    let length = unsafe { *ctx.as_ptr().cast::<u64>().add(3) } as i32;
    let flags: i32 = ctx.arg(2);
    if length > 0 && flags & ERRORS == 0 {
        // SAFETY: argument 0 is the `socket`, which has its `sock`.
        unsafe { read(SOCKET_SOCK.load(ctx.arg(0)) as *const u8, flags) };
    }
    0
}

/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
unsafe fn read(sock: *const u8, flags: i32) {
    // SAFETY: by the caller.
    if unsafe { !is_internet(sock) } {
        return;
    }
    // SAFETY: by the caller.
    let reader = unsafe { if flags & PEEK == 0 { owner::read_by_current(sock) } else { owner::current() } };
    // SAFETY: by the caller.
    let (rtt, network) = unsafe { (|| tcp::smoothed_rtt(sock), || peer_network(Typed::new(sock))) };
    tcp_rtt::read(rtt, network, 1, || owner::or_node(|| owner::slot(reader)));
}

/// Whether a socket is of IPv4 or IPv6.
///
/// # Safety
/// `sock` is a typed `struct sock *`.
#[inline(always)]
pub(super) unsafe fn is_internet(sock: *const u8) -> bool {
    // SAFETY: by the caller.
    matches!(unsafe { SOCK_FAMILY.load(sock) }, AF_INET | AF_INET6)
}

/// Whether this is a whole internet socket, and none that stands for a half-open or closed connection.
///
/// # Safety
/// `sock` is a typed `struct sock *`, or null.
#[inline(always)]
pub(super) unsafe fn is_whole(sock: *const u8) -> bool {
    // Some kernels believe an argument never to be null, and leave this out. All fields of a null are zero.
    if sock.is_null() {
        return false;
    }
    // SAFETY: by the caller.
    unsafe { is_internet(sock) && !matches!(SOCK_STATE.load(sock), TCP_TIME_WAIT | TCP_NEW_SYN_RECV) }
}

/// The slot of a socket's owner; `None` of what is no whole internet socket.
///
/// # Safety
/// As for [`is_whole`].
#[inline(always)]
pub(super) unsafe fn slot_of_owner(sock: *const u8) -> Option<Slot> {
    // SAFETY: by the caller.
    unsafe { if is_whole(sock) { Some(owner::slot_of_owner(sock)) } else { None } }
}

/// `cgroup/sock_create`, run when a task makes an IPv4 or IPv6 socket. Every socket may be made.
#[cgroup_sock(sock_create)]
fn socket_created(ctx: SockContext) -> i32 {
    // SAFETY: the context is the socket.
    unsafe { owner::created_by_current(ctx.as_ptr().cast_const().cast()) };
    1
}
