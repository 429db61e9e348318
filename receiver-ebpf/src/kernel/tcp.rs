//! What TCP knows of a connection.

use core::hint::black_box;

use aya_ebpf::helpers::generated::bpf_skc_to_tcp_sock;

use super::{
    fields::{SOCK_PROTOCOL, SOCK_TYPE, TCP_SRTT},
    set_outside,
};

const IPPROTO_TCP: u16 = 6;
/// `sock.sk_type` of a connection.
pub const SOCK_STREAM: u16 = 1;

/// Whether tracing programs may take a socket for TCP's (5.9 and later).
#[unsafe(export_name = "tcp.cast")]
#[unsafe(link_section = ".rodata.flags")]
static CASTS: u32 = 0;

/// Nanoseconds in the unit of `srtt_us`, an eighth of a microsecond.
const EIGHTH: u64 = 125;

/// The smoothed round-trip time of a connection, in nanoseconds; `None` of sockets that have none: another protocol's, and
/// connections of which nothing was acknowledged yet.
///
/// # Safety
/// `sock` is a typed and trusted `struct sock *`.
#[inline(always)]
pub unsafe fn smoothed_rtt(sock: *const u8) -> Option<u64> {
    if set_outside(&CASTS) == 0 || !TCP_SRTT.present() {
        return None;
    }
    // The helper looks at the protocol alone, which raw sockets have too: what it makes of these is no `tcp_sock`.
    // SAFETY: by the caller.
    if unsafe { SOCK_PROTOCOL.load(sock) != IPPROTO_TCP || SOCK_TYPE.load(sock) != SOCK_STREAM } {
        return None;
    }
    // SAFETY: by the caller.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sock.cast_mut().cast()) };
    if tcp.is_null() {
        return None;
    }
    // SAFETY: the verifier knows what the helper returns, and the field was checked for.
    let eighths = u64::from(unsafe { TCP_SRTT.load(tcp.cast_const().cast()) });
    // Opaque, or the compiler compares the one factor where the product is compared, of which the verifier then knows
    // nothing.
    (eighths != 0).then(|| black_box(eighths * EIGHTH))
}
