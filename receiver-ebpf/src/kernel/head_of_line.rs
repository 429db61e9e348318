//! Whether what was read of a TCP connection had waited for the network: see [`undercurrent_ebpf::abi::head_of_line`].

use undercurrent_ebpf::abi::head_of_line::{self, Blocking};

use super::{
    fields::{SKB_CONTROL, TCP_END, TCP_OUT_OF_ORDER, TCP_OUT_OF_ORDER_LAST, TCP_OUT_OF_ORDER_QUEUE, TCP_RECEIVE_NEXT},
    owner,
    pointer::Pointer,
    set_outside,
    storage::SocketWord,
    tcp::is_connection,
};

/// Whether such reads are left out; only where the kernel counts segments out of order.
#[unsafe(export_name = "head_of_line.exclude")]
#[unsafe(link_section = ".rodata.flags")]
static EXCLUDE: u32 = 0;

/// A [`Blocking`] of each connection that got segments out of order.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "BLOCKING")]
static BLOCKING: SocketWord = SocketWord::declared();

/// Who looks at a packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// What sees it arrive in its socket's queue.
    Arrival,
    /// Its reader.
    Read,
}

/// Whether a packet was blocked, or may have been, where such packets are left out; `count` says how many segments the
/// connection got out of order, and `until` the sequence number after what was read or arrived. Where nothing can be kept with
/// sockets, every packet is that comes after the first such segment.
///
/// # Safety
/// `sock` is a typed `struct sock *` of a TCP connection that may be asked for its storage.
#[inline(always)]
pub unsafe fn blocked(sock: *const u8, at: At, count: impl FnOnce() -> u32, until: impl FnOnce() -> u32) -> bool {
    if set_outside(&EXCLUDE) == 0 {
        return false;
    }
    let count = count();
    if count == 0 || !owner::storage() {
        return count != 0;
    }
    // SAFETY: by the caller.
    let before = Blocking(unsafe { BLOCKING.get(sock) }.unwrap_or(0));
    // SAFETY: by the caller.
    let end = || unsafe { end(sock) };
    let (after, blocked) = match at {
        At::Arrival => before.after_arrival(count, until(), end),
        At::Read => before.after(count, until(), end),
    };
    if after != before {
        // SAFETY: by the caller. What the kernel has no room for is found out anew by the next look.
        unsafe { BLOCKING.set(sock, after.0) };
    }
    blocked
}

/// The same of a `sock` that may not be asked for its storage: every read is that comes after the first such segment.
#[inline(always)]
pub fn may_be_blocked(sock: impl Pointer) -> bool {
    set_outside(&EXCLUDE) != 0 && is_connection(sock) && sock.read(&TCP_OUT_OF_ORDER) != 0
}

/// Where what came out of order ends.
///
/// # Safety
/// `sock` is the address of a `struct tcp_sock`.
#[inline(always)]
unsafe fn end(sock: *const u8) -> Option<u32> {
    // SAFETY: by the caller; every kernel that counts has these fields. The queue first: once it is empty, all that was in it
    // is in order.
    unsafe {
        let last = if TCP_OUT_OF_ORDER_QUEUE.probe(sock) == 0 {
            None
        } else {
            Some(TCP_END.probe(SKB_CONTROL.begins(TCP_OUT_OF_ORDER_LAST.probe(sock) as *const u8)))
        };
        head_of_line::end(TCP_RECEIVE_NEXT.probe(sock), last)
    }
}
