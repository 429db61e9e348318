//! What TCP knows of a connection.

use core::hint::black_box;

use aya_ebpf::helpers::generated::bpf_skc_to_tcp_sock;
use undercurrent_ebpf::abi::cast::POINTER;

use super::{
    fields::{SOCK_PROTOCOL, SOCK_TYPE, TCP_OUT_OF_ORDER, TCP_SRTT},
    pointer::{Pointer, Typed},
    set_outside,
};

/// `sock.sk_protocol` of TCP.
const IPPROTO_TCP: u16 = 6;
/// `sock.sk_type` of a connection.
const SOCK_STREAM: u16 = 1;

/// Whether a helper takes a socket for TCP's (5.9 and later).
#[unsafe(export_name = "tcp.cast")]
#[unsafe(link_section = ".rodata.flags")]
static CASTS: u32 = 0;

/// The number of `struct tcp_sock`, where a pointer can be taken for one to it without a call (6.2 and later); else zero.
#[unsafe(export_name = "tcp.type")]
#[unsafe(link_section = ".rodata.flags")]
static TYPE: u32 = 0;

/// Nanoseconds in the unit of `srtt_us`, an eighth of a microsecond.
const EIGHTH: u64 = 125;

/// Whether a `sock`, or a null, is a connection of TCP's: raw sockets may have its protocol too, and multipath TCP's are read as
/// its connections are.
#[inline(always)]
pub fn is_connection(sock: impl Pointer) -> bool {
    sock.read(&SOCK_PROTOCOL) == IPPROTO_TCP && sock.read(&SOCK_TYPE) == SOCK_STREAM
}

/// The connection that a socket is, as a typed `struct tcp_sock *`; `None` of other sockets, and where the kernel does not
/// give it.
///
/// # Safety
/// `sock` is a typed `struct sock *`, or null; and trusted, unless `TYPE` is set.
#[inline(always)]
unsafe fn connection(sock: *const u8) -> Option<*const u8> {
    // SAFETY: by the caller.
    if !is_connection(unsafe { Typed::new(sock) }) {
        return None;
    }
    // SAFETY: the socket is a connection's.
    unsafe { cast(sock).or_else(|| connection_by_helper(sock)) }
}

/// A connection's socket as a `struct tcp_sock *`, without a call; `None` where the kernel has no such cast.
///
/// # Safety
/// `sock` is a typed `struct sock *` of a connection.
#[inline(always)]
unsafe fn cast(sock: *const u8) -> Option<*const u8> {
    let number = set_outside(&TYPE);
    if number == 0 {
        return None;
    }
    // SAFETY: the loader replaces the call; the verifier makes it a move of the pointer.
    let cast: unsafe extern "C" fn(*const u8, u32) -> *const u8 = unsafe { core::mem::transmute(POINTER) };
    // SAFETY: by the caller.
    Some(unsafe { cast(sock, number) })
}

/// The connection behind a socket that is read as a stream, TCP's or multipath TCP's; `None` of the latter.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`, and no raw socket.
#[inline(always)]
pub unsafe fn of_stream(sock: *const u8) -> Option<*const u8> {
    if set_outside(&TYPE) == 0 {
        // SAFETY: by the caller.
        return unsafe { connection_by_helper(sock) };
    }
    // SAFETY: by the caller.
    unsafe { if SOCK_PROTOCOL.load(sock) == IPPROTO_TCP { cast(sock) } else { None } }
}

/// The same of a socket that is no raw one: the helper looks at the protocol alone, which those may have too.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`.
#[inline(always)]
unsafe fn connection_by_helper(sock: *const u8) -> Option<*const u8> {
    if set_outside(&CASTS) == 0 {
        return None;
    }
    // SAFETY: by the caller.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sock.cast_mut().cast()) };
    if tcp.is_null() { None } else { Some(tcp.cast_const().cast()) }
}

/// The smoothed round-trip time of a socket's connection, in nanoseconds; `None` of sockets that have none: another
/// protocol's, and connections of which nothing was acknowledged yet.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`.
#[inline(always)]
pub unsafe fn smoothed_rtt(sock: *const u8) -> Option<u64> {
    // SAFETY: by the caller.
    if TCP_SRTT.present() { unsafe { rtt(connection(sock)?) } } else { None }
}

/// The same of a connection.
///
/// # Safety
/// `connection` is a typed `struct tcp_sock *`.
#[inline(always)]
pub unsafe fn rtt(connection: *const u8) -> Option<u64> {
    if !TCP_SRTT.present() {
        return None;
    }
    // SAFETY: by the caller, and the field was checked for.
    let eighths = u64::from(unsafe { TCP_SRTT.load(connection) });
    // Opaque, or the compiler compares the one factor where the product is compared, of which the verifier then knows
    // nothing.
    (eighths != 0).then(|| black_box(eighths * EIGHTH))
}

/// How many segments a connection got out of order.
///
/// # Safety
/// `connection` is a typed `struct tcp_sock *`, and the kernel has the field.
#[inline(always)]
pub unsafe fn out_of_order(connection: *const u8) -> u32 {
    // SAFETY: by the caller.
    unsafe { TCP_OUT_OF_ORDER.load(connection) }
}

/// The same of a socket with TCP's protocol that no helper trusts; none where it is a raw one.
///
/// # Safety
/// `sock` is a typed `struct sock *`; the kernel has the field.
#[inline(always)]
pub unsafe fn out_of_order_untrusted(sock: *const u8) -> u32 {
    // SAFETY: by the caller. What lies there of a raw socket is something else, or nothing.
    unsafe {
        let count = cast(sock).map_or_else(|| TCP_OUT_OF_ORDER.probe(sock), |tcp| TCP_OUT_OF_ORDER.load(tcp));
        // Last, since hardly any connection has such segments.
        if count != 0 && SOCK_TYPE.load(sock) != SOCK_STREAM { 0 } else { count }
    }
}
