//! `undercurrent.tcp.peer.*`: the transactions of TCP connections by both ends.
//!
//! Both ends of a connection on this host know the two sequence numbers at which its directions begin. No translation of addresses changes
//! them, so the ends find each other by these numbers: through NAT, between namespaces, and over loopback.
//!
//! ```text
//!  client   handshake answered    PAIRS[numbers].client = workload
//!  server   first segment         PAIRS[numbers].server = workload, port
//!  either   first transaction     the peer is the other end of PAIRS[numbers], else the address of the socket's other end;
//!                                 the edge of workload, role, peer and port
//!  either   each transaction      adds to the edge
//! ```

use aya_ebpf::{
    bindings::{__sk_buff, BPF_NOEXIST},
    macros::map,
    maps::{Array, LruHashMap},
};
use undercurrent_ebpf::abi::{
    peers::{Amount, Edge, End, NO_EDGE, PROBES, Pair, PeerCells, PeerLoss, first, mapped},
    transactions::Role,
    workload::Slot,
};

use super::{
    switch,
    tcp_transactions::{Added, UNKNOWN},
    timings,
};
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    constant::constants,
    context::SkbContext,
    fields::{
        SOCK_DADDR, SOCK_DPORT, SOCK_FAMILY, SOCK_PORT, SOCK_STATE, SOCK_V6_DADDR, Sock, TCP_BYTES_RECEIVED,
        TCP_RECEIVE_NEXT, TCP_SEND_NEXT, TCP_UNACKNOWLEDGED,
    },
    pointer::Ptr,
    shared,
    storage::OwnValue,
    tcp::{state, untrusted},
    tcp_header::TcpHeader,
};

switch!("tcp_peers");

constants! {
    /// The number of entries of the table of edges, a power of two, minus one.
    MASK = "peers.mask";
}

/// The edges, then those of [`undercurrent_ebpf::abi::peers::OTHERS`].
#[map]
static EDGES: Array<Edge> = Array::with_max_entries(1, MMAPABLE);

/// The ends of connections, by their sequence numbers.
#[map]
static PAIRS: LruHashMap<u64, Pair> = LruHashMap::with_max_entries(1, 0);

/// Losses.
#[map]
static PEER_LOSSES: ByCpu<PeerCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The peer of each connection.
#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "PEERS")]
static PEERS: OwnValue<Peer> = OwnValue::declared();

/// The peer of a connection.
#[derive(Clone, Copy)]
#[repr(C)]
struct Peer {
    /// The sequence numbers in [`PAIRS`].
    pair: u64,
    /// The other end, if it is on this host; [`REMOTE`] if it is not, and zero before the first transaction.
    other: u64,
    /// [`Edge::ready`] of the edge.
    ready: u64,
    /// Bytes that are in no edge yet.
    sent: u64,
    received: u64,
    /// The index of the edge.
    edge: u64,
}

/// [`Peer::other`] of a connection to another host.
const REMOTE: u64 = 1;

/// Events of a connection: bits above the slot in an argument.
mod event {
    pub const SERVER: u64 = 1 << 16;
    pub const BEGINS: u64 = 1 << 17;
    pub const FAILED: u64 = 1 << 18;
    pub const LAST: u64 = 1 << 19;
    /// The program for received segments does not follow the connection.
    pub const REFUSED: u64 = 1 << 20;
    /// The number of bits of the slot and the events. The weight of a transaction is above.
    pub const BITS: u32 = 32;
}

/// Records that a connection begins.
#[inline(always)]
pub fn begins(skb: SkbContext, role: Role, header: &TcpHeader, slot: Slot) {
    if enabled() {
        // The number after the answer to the handshake, which TCP has not handled.
        let following = u64::from(header.sequence.wrapping_add(1));
        advance_peers(skb.raw(), 0, following, event::BEGINS | of(role, slot));
    }
}

/// Records that the other end refused a connection.
#[inline(always)]
pub fn refused(skb: SkbContext, slot: Slot) {
    if enabled() {
        advance_peers(skb.raw(), 0, 0, event::REFUSED | event::FAILED | of(Role::Client, slot));
    }
}

/// Adds the measurements of a segment to the edge of its connection.
#[inline(always)]
pub fn add(skb: SkbContext, added: &Added, slot: Slot) {
    if enabled() {
        let failed = if added.reset { event::FAILED } else { 0 };
        let last = if added.connection != 0 { event::LAST } else { 0 };
        let bytes = u64::from(added.sent) << 32 | u64::from(added.received);
        let weight = u64::from(added.weight) << event::BITS;
        advance_peers(skb.raw(), added.transaction, bytes, weight | failed | last | of(added.role, slot));
    }
}

#[inline(always)]
fn of(role: Role, slot: Slot) -> u64 {
    u64::from(slot.0) | if matches!(role, Role::Server) { event::SERVER } else { 0 }
}

/// Advances the peer of a segment's connection. A global function, which the verifier follows once for a program. `duration` is that of a
/// transaction in nanoseconds. `bytes` has the number of sent bytes above the number of received ones; with [`event::BEGINS`], the number
/// after the segment's sequence number. `what` has the weight of the transaction, bits of [`event`] and the slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn advance_peers(skb: *const __sk_buff, duration: u64, bytes: u64, what: u64) -> u32 {
    // A constant to the verifier, which also follows functions that are never called (before 6.8).
    if !enabled() {
        return 0;
    }
    let skb = SkbContext::at(skb);
    let role = if what & event::SERVER != 0 { Role::Server } else { Role::Client };
    let slot = Slot(what as u16);
    let Some(socket) = skb.socket() else { return 0 };
    let Some(sock) = skb.kernel_socket() else { return 0 };
    if what & event::REFUSED != 0 {
        let end = End::new(slot, role, port(sock, role), false);
        add_to(find(end, address(sock), role), 0, 0, [0; 2], true);
        return 0;
    }
    if what & event::BEGINS != 0 {
        let mut peer = Peer {
            pair: numbers(sock, role, bytes as u32),
            other: 0,
            ready: 0,
            sent: 0,
            received: 0,
            edge: u64::from(NO_EDGE),
        };
        publish(peer.pair, role, End::new(slot, role, port(sock, role), true));
        if PEERS.value_or(socket, &mut peer).is_null() {
            lost(PeerLoss::StorageRefused);
        }
        return 0;
    }
    let peer = PEERS.value(socket);
    if peer.is_null() {
        return 0;
    }
    // SAFETY: storage of the socket, checked for null.
    let peer = unsafe { &mut *peer };
    peer.sent += bytes >> 32;
    peer.received += bytes & u64::from(u32::MAX);
    let is_final = duration != 0 || what & (event::LAST | event::FAILED) != 0;
    if peer.other == 0 {
        // The other end may not have begun yet.
        peer.other = other(peer.pair, role, is_final);
        if peer.other == 0 {
            return 0;
        }
    }
    let is_local = peer.other != REMOTE;
    // The server's own port: the client's may be that of a translated address.
    let port = if is_local && matches!(role, Role::Client) { End(peer.other).port() } else { port(sock, role) };
    let end = End::new(slot, role, port, is_local);
    let index = match kept(peer, end) {
        Some(index) => index,
        None => {
            let remote = if is_local { [u64::from(End(peer.other).slot().0), 0] } else { address(sock) };
            find(end, remote, role)
        }
    };
    peer.edge = u64::from(index);
    peer.ready = add_to(index, duration, what >> event::BITS, [peer.sent, peer.received], what & event::FAILED != 0);
    peer.sent = 0;
    peer.received = 0;
    0
}

/// Returns the index of a connection's edge, if it is still that of its end.
#[inline(always)]
fn kept(peer: &Peer, end: End) -> Option<u32> {
    let index = peer.edge as u32;
    let edge = EDGES.get_ptr(index)?;
    // SAFETY: an entry of the map, which lives as long as the program.
    let edge = unsafe { &*edge };
    if peer.ready != 0 && edge.ready == peer.ready && edge.end.0 == end.0 { Some(index) } else { None }
}

/// Returns the sequence numbers at which the directions of a connection begin: the client's, then the server's. For a connection that is
/// older than the programs, those of the first turn that they see. `following` is the number after the segment's first.
#[inline(always)]
fn numbers(sock: Ptr<Sock>, role: Role, following: u32) -> u64 {
    let unacknowledged = || untrusted(sock, &TCP_UNACKNOWLEDGED);
    let next = || untrusted(sock, &TCP_RECEIVE_NEXT);
    let (client, server) = match role {
        // TCP has handled nothing of the handshake's answer.
        Role::Client if sock.read(&SOCK_STATE) == state::SYN_SENT => (unacknowledged().wrapping_add(1), following),
        Role::Client => (unacknowledged(), next()),
        Role::Server if untrusted(sock, &TCP_BYTES_RECEIVED) == 0 => (next(), unacknowledged()),
        Role::Server => (next(), untrusted(sock, &TCP_SEND_NEXT)),
    };
    u64::from(client) << 32 | u64::from(server)
}

/// Stores an end of a connection for the other end.
#[inline(always)]
fn publish(numbers: u64, role: Role, end: End) {
    let mut pair = Pair { ends: [0; 2] };
    match role {
        Role::Client => pair.ends[0] = end.0,
        Role::Server => pair.ends[1] = end.0,
    }
    // Fails if the other end has an entry.
    if PAIRS.insert(&numbers, &pair, BPF_NOEXIST.into()).is_err()
        && let Some(known) = PAIRS.get_ptr_mut(&numbers)
    {
        match role {
            // SAFETY: an entry of the map. Each end writes its own word.
            Role::Client => unsafe { (&raw mut (*known).ends[0]).write_volatile(end.0) },
            // SAFETY: an entry of the map. Each end writes its own word.
            Role::Server => unsafe { (&raw mut (*known).ends[1]).write_volatile(end.0) },
        }
    }
}

/// Returns the other end of a connection, if it is on this host. If it has not begun: [`REMOTE`] if this is `final`, else zero.
#[inline(always)]
fn other(numbers: u64, role: Role, is_final: bool) -> u64 {
    let missing = if is_final { REMOTE } else { 0 };
    let Some(pair) = PAIRS.get_ptr(&numbers) else {
        if is_final {
            lost(PeerLoss::Unpaired);
        }
        return missing;
    };
    let end = match role {
        // SAFETY: an entry of the map.
        Role::Client => unsafe { (&raw const (*pair).ends[1]).read_volatile() },
        // SAFETY: an entry of the map.
        Role::Server => unsafe { (&raw const (*pair).ends[0]).read_volatile() },
    };
    if end == 0 { missing } else { end }
}

/// Returns the server's port.
#[inline(always)]
fn port(sock: Ptr<Sock>, role: Role) -> u16 {
    match role {
        Role::Client => u16::from_be(sock.read(&SOCK_DPORT)),
        Role::Server => sock.read(&SOCK_PORT),
    }
}

/// Returns the address of the other end.
#[inline(always)]
fn address(sock: Ptr<Sock>) -> [u64; 2] {
    const AF_INET: u16 = 2;
    if sock.read(&SOCK_FAMILY) == AF_INET { mapped(sock.read(&SOCK_DADDR)) } else { sock.read(&SOCK_V6_DADDR) }
}

/// Returns the index of an edge, and creates it; that of all others if the table has no free entry.
#[inline(always)]
fn find(end: End, peer: [u64; 2], role: Role) -> u32 {
    let index = find_edge(end.0, peer[0], peer[1]);
    if index != NO_EDGE {
        return index;
    }
    lost(PeerLoss::EdgeLimit);
    MASK.get() + 1 + role as u32
}

/// Finds or creates an edge; [`NO_EDGE`] if the table has no free entry. A global function, which the verifier follows once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_edge(end: u64, peer: u64, rest: u64) -> u32 {
    if !enabled() {
        return NO_EDGE;
    }
    let from = first(End(end), [peer, rest]);
    for probe in 0..PROBES {
        let index = from.wrapping_add(probe) & MASK.get();
        let Some(edge) = EDGES.get_ptr_mut(index) else { return NO_EDGE };
        // SAFETY: an entry of the map, which lives as long as the program.
        let edge = unsafe { &mut *edge };
        if edge.ready != 0 {
            if edge.end.0 == end && edge.peer[0] == peer && edge.peer[1] == rest {
                return index;
            }
        } else if edge.claims == 0 {
            shared::add(&raw mut edge.claims, 1);
            // SAFETY: a word of the entry, which other CPUs may write.
            if unsafe { (&raw const edge.claims).read_volatile() } == 1 {
                edge.end = End(end);
                edge.peer = [peer, rest];
                let ready = edge.ended + 1;
                // SAFETY: a word of the entry, which follows the key in this order.
                unsafe { (&raw mut edge.ready).write_volatile(ready) };
                return index;
            }
        }
    }
    NO_EDGE
}

/// Adds to an edge. Returns its [`Edge::ready`].
#[inline(always)]
fn add_to(index: u32, duration: u64, weight: u64, [sent, received]: [u64; 2], failed: bool) -> u64 {
    let Some(edge) = EDGES.get_ptr_mut(index) else { return 0 };
    // SAFETY: an entry of the map, which lives as long as the program. Several CPUs add to it, atomically.
    let edge = unsafe { &mut *edge };
    let amount = |edge: &mut Edge, which: Amount, amount| shared::add(&raw mut edge.amounts[which as usize], amount);
    // The compiler replaces the addition of a constant zero by a bitwise operation, which kernels before 5.12 do not have.
    if sent != 0 {
        amount(edge, Amount::Sent, sent);
    }
    if received != 0 {
        amount(edge, Amount::Received, received);
    }
    if failed {
        amount(edge, Amount::Failed, 1);
    }
    match duration {
        0 => {}
        UNKNOWN => amount(edge, Amount::Untimed, weight),
        duration => match timings::plausible(duration) {
            Ok(duration) => {
                let words = (&raw mut edge.durations).cast::<u64>();
                // SAFETY: the cell has the words of a histogram, and one more bucket than a byte can number.
                let _ = cells::record_words(duration, weight, |at, by| shared::add(unsafe { words.byte_add(at) }, by));
            }
            Err(_) => amount(edge, Amount::Untimed, weight),
        },
    }
    edge.ready
}

/// Counts a loss.
#[inline(always)]
fn lost(reason: PeerLoss) {
    if let Some(cells) = cells::here(&PEER_LOSSES) {
        // Each reason has a constant index. A program of another connection may interrupt.
        shared::add(&raw mut cells.lost[reason as usize], 1);
    }
}
