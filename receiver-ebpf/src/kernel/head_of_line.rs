//! Detects TCP data that waited for the network: see [`undercurrent_ebpf::abi::head_of_line`].

use undercurrent_ebpf::abi::head_of_line::{self, Blocking};

use super::{
    constant::constants,
    fields::{
        SKB_CB, Sock, TCP_END, TCP_OUT_OF_ORDER, TCP_OUT_OF_ORDER_LAST, TCP_OUT_OF_ORDER_QUEUE, TCP_RECEIVE_NEXT,
        TcpSock,
    },
    owner,
    pointer::{Probed, Ptr},
    storage::SocketWord,
    tcp::is_connection,
};

constants! {
    /// 1 if blocked data is excluded; only on kernels that count out-of-order segments.
    EXCLUDE = "head_of_line.exclude";
}

/// A [`Blocking`] for each connection with out-of-order segments.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "BLOCKING")]
static BLOCKING: SocketWord = SocketWord::declared();

/// The hook that sees a packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The packet arrives in its socket's queue.
    Arrival,
    /// The application reads the packet.
    Read,
}

/// Returns true if a packet was blocked, or may have been, and blocked packets are excluded.
///
/// `sock` is a trusted pointer to a connection. `count` returns the number of its out-of-order segments, and `until` the
/// sequence number after the data that arrived or was read. Without socket storage, all data after the first out-of-order
/// segment counts as blocked.
#[inline(always)]
pub fn blocked(sock: Ptr<Sock>, at: At, count: impl FnOnce() -> u32, until: impl FnOnce() -> u32) -> bool {
    if EXCLUDE.get() == 0 {
        return false;
    }
    let count = count();
    if count == 0 || !owner::storage() {
        return count != 0;
    }
    let before = Blocking(BLOCKING.get(sock).unwrap_or(0));
    let end = || end(sock.probed().cast());
    let (after, blocked) = match at {
        At::Arrival => before.after_arrival(count, until(), end),
        At::Read => before.after(count, until(), end),
    };
    if after != before {
        // If the kernel refuses the storage, the next packet computes the state again.
        BLOCKING.set(sock, after.0);
    }
    blocked
}

/// Returns true if blocked data is excluded and a connection has received out-of-order segments, for programs without
/// access to socket storage.
#[inline(always)]
pub fn may_be_blocked(sock: Ptr<Sock, Probed>) -> bool {
    EXCLUDE.get() != 0 && is_connection(sock) && sock.cast::<TcpSock>().read(&TCP_OUT_OF_ORDER) != 0
}

/// Returns the sequence number after the last out-of-order segment.
#[inline(always)]
fn end(tcp: Ptr<TcpSock, Probed>) -> Option<u32> {
    // The tree is read before `rcv_nxt`: once the tree is empty, all of its data is in order.
    let last = if tcp.read(&TCP_OUT_OF_ORDER_QUEUE) == 0 {
        None
    } else {
        Some(tcp.follow(&TCP_OUT_OF_ORDER_LAST).embedded(&SKB_CB).read(&TCP_END))
    };
    head_of_line::end(tcp.read(&TCP_RECEIVE_NEXT), last)
}
