//! State of TCP connections.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_skc_to_tcp_sock;
use undercurrent_ebpf::abi::cast::POINTER;
use zerocopy::FromBytes;

use super::{
    constant::constants,
    field::Field,
    fields::{SKB_CB, SOCK_PROTOCOL, SOCK_TYPE, SkBuff, Sock, TCP_OUT_OF_ORDER, TCP_SRTT, TcpSkbCb, TcpSock},
    pointer::{Access, Probed, Ptr},
    workarounds::opaque,
};

/// Protocol number of TCP, also `sock.sk_protocol`.
pub const IPPROTO_TCP: u8 = 6;
/// `sock.sk_type` of a connection.
const SOCK_STREAM: u16 = 1;

/// States of connections (include/net/tcp_states.h).
pub mod state {
    pub const ESTABLISHED: u8 = 1;
    pub const SYN_SENT: u8 = 2;
    pub const TIME_WAIT: u8 = 6;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LISTEN: u8 = 10;
    pub const NEW_SYN_RECV: u8 = 12;
}

constants! {
    /// 1 if the kernel has `bpf_skc_to_tcp_sock` (5.9 and later).
    CASTS = "tcp.cast";
    /// BTF type id of `struct tcp_sock` if the kernel has `bpf_rdonly_cast` (6.2 and later); else zero.
    TYPE = "tcp.type";
    /// BTF type id of `struct sk_buff` on the same kernels; else zero.
    SEGMENT_TYPE = "tcp.segment";
    /// BTF type id of `struct tcp_skb_cb` on the same kernels; else zero.
    CONTROL_TYPE = "tcp.control";
}

/// Nanoseconds in the unit of `srtt_us`, an eighth of a microsecond.
const EIGHTH: u64 = 125;

/// Returns true if a socket, or null, is a TCP connection. The type excludes raw sockets with TCP's protocol number.
/// Multipath TCP has another protocol number; its subflows are TCP connections.
#[inline(always)]
pub fn is_connection<A: Access>(sock: Ptr<Sock, A>) -> bool {
    sock.read(&SOCK_PROTOCOL) == IPPROTO_TCP.into() && sock.read(&SOCK_TYPE) == SOCK_STREAM
}

/// Returns the connection of a socket, or null; `None` for other sockets, and if the kernel has no cast. The pointer must be
/// trusted if the kernel lacks `bpf_rdonly_cast`.
#[inline(always)]
fn connection(sock: Ptr<Sock>) -> Option<Ptr<TcpSock>> {
    if !is_connection(sock) {
        return None;
    }
    match type_id() {
        Some(id) => Some(cast(sock.raw(), id)),
        None => connection_by_helper(sock),
    }
}

/// Returns the BTF type id of `struct tcp_sock`; `None` if the kernel lacks `bpf_rdonly_cast`.
#[inline(always)]
fn type_id() -> Option<u32> {
    let id = TYPE.get();
    if id == 0 { None } else { Some(id) }
}

/// Casts an address without a call. `id` is the BTF type id of `T`.
#[inline(always)]
fn cast<T>(address: *const impl Sized, id: u32) -> Ptr<T> {
    // SAFETY: the loader replaces the address by `bpf_rdonly_cast`, which has this signature.
    let cast: unsafe extern "C" fn(*const c_void, u32) -> *const T = unsafe { core::mem::transmute(POINTER) };
    // SAFETY: the function returns the pointer with the type of the id. A load through it is safe at any address: it returns the bytes
    // there, or zero if it faults.
    unsafe { Ptr::typed(cast(address.cast(), id)) }
}

/// Returns the packet at an address and its control buffer. The kernel must have `bpf_rdonly_cast`.
#[inline(always)]
pub fn segment(address: u64) -> (Ptr<SkBuff>, Ptr<TcpSkbCb>) {
    let control = Ptr::<SkBuff, Probed>::at(address).embedded(&SKB_CB);
    (cast(address as *const c_void, SEGMENT_TYPE.get()), cast(control.raw(), CONTROL_TYPE.get()))
}

/// Returns the connection of a trusted socket that is read as a stream; `None` for the main socket of multipath TCP. The socket
/// must not be raw.
#[inline(always)]
pub fn of_stream(sock: Ptr<Sock>) -> Option<Ptr<TcpSock>> {
    match type_id() {
        Some(id) if sock.read(&SOCK_PROTOCOL) == IPPROTO_TCP.into() => Some(cast(sock.raw(), id)),
        Some(_) => None,
        None => connection_by_helper(sock),
    }
}

/// Returns the connection of a trusted socket. The socket must not be raw: the helper checks only the protocol number.
#[inline(always)]
fn connection_by_helper(sock: Ptr<Sock>) -> Option<Ptr<TcpSock>> {
    if CASTS.get() == 0 {
        return None;
    }
    // SAFETY: the helper takes a socket, which the verifier checks, and returns a `tcp_sock` or null.
    unsafe { Ptr::typed(bpf_skc_to_tcp_sock(sock.raw().cast_mut().cast()).cast_const().cast::<TcpSock>()) }.non_null()
}

/// Returns the smoothed round-trip time of a trusted socket's connection in nanoseconds; `None` for other sockets, and before
/// the first acknowledgement.
#[inline(always)]
pub fn smoothed_rtt(sock: Ptr<Sock>) -> Option<u64> {
    if TCP_SRTT.present() { rtt(connection(sock)?) } else { None }
}

/// Returns the smoothed round-trip time of a connection in nanoseconds; `None` before the first acknowledgement.
#[inline(always)]
pub fn rtt(connection: Ptr<TcpSock>) -> Option<u64> {
    let eighths = u64::from(connection.get(&TCP_SRTT)?);
    (eighths != 0).then(|| opaque(eighths * EIGHTH))
}

/// Returns the number of segments that a connection received out of order. The kernel must have the field.
#[inline(always)]
pub fn out_of_order(connection: Ptr<TcpSock>) -> u32 {
    connection.read(&TCP_OUT_OF_ORDER)
}

/// Reads a number of a connection, for untrusted pointers.
#[inline(always)]
pub fn untrusted<V: Copy + FromBytes, const FIELD: u64>(
    sock: Ptr<Sock>,
    field: &'static Field<TcpSock, V, FIELD>,
) -> V {
    match type_id() {
        Some(id) => cast::<TcpSock>(sock.raw(), id).read(field),
        None => sock.probed().cast::<TcpSock>().read(field),
    }
}

/// Returns the number of out-of-order segments of a socket with TCP's protocol number, for untrusted pointers; zero for a
/// raw socket. The kernel must have the field.
#[inline(always)]
pub fn out_of_order_untrusted(sock: Ptr<Sock>) -> u32 {
    // For a raw socket this reads memory after the socket, or zero.
    let count = untrusted(sock, &TCP_OUT_OF_ORDER);
    // The type is checked last, since few connections have out-of-order segments.
    if count != 0 && sock.read(&SOCK_TYPE) != SOCK_STREAM { 0 } else { count }
}
