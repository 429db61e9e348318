//! `undercurrent.tcp.transaction.duration`, `undercurrent.tcp.connection.duration`, `undercurrent.tcp.connections` and `undercurrent.tcp.io`.
//!
//! A connection is a sequence of turns: data one way, then the other. The program for received segments sees when data arrives. When data
//! was sent is read from the kernel, at the next segment that arrives: TCP keeps each segment with its departure time until it is
//! acknowledged. No program runs when data is sent.
//!
//! ```text
//!  server   request ->            first = arrival of the last segment, mark = next number to send
//!           <- response           (no program)
//!           acknowledgement or next request ->   the segment with number `mark` has the departure time of the response
//!
//!  client   -> request            (no program)
//!           <- acknowledgement or response       the segment with number `mark` has the departure time of the request: first
//!           <- response           last = arrival of the last segment
//!           <- anything after the next request, or the end: the transaction took from `first` to `last`
//! ```

use aya_ebpf::{bindings::bpf_sock, macros::map};
use undercurrent_ebpf::abi::{
    head_of_line::is_after,
    loss::PacketLoss,
    series::Series,
    transactions::{Count, Role, WORDS},
    workload::Slot,
};

use super::{switch, tcp_peers, timings};
use crate::kernel::{
    cells::MMAPABLE,
    clock,
    context::SkbContext,
    fields::{
        SKB_LEFT, SKB_RIGHT, SKB_TSTAMP, SOCK_DPORT, SOCK_ERROR, SOCK_PORT, SOCK_SHUTDOWN, SOCK_STATE,
        SOCK_UNACKNOWLEDGED, Sock, TCP_BYTES_RECEIVED, TCP_END, TCP_LAST_DEPARTURE, TCP_RECEIVE_NEXT, TCP_RETRANSMITS,
        TCP_SACKED, TCP_SEND_NEXT, TCP_START, TCP_UNACKNOWLEDGED, TCP_WRITTEN,
    },
    owner,
    pointer::Ptr,
    sample,
    shard::{Counters, SlotCounters},
    storage::OwnValue,
    tcp::{self, state, untrusted},
    tcp_header::TcpHeader,
};

switch!("tcp_transactions");

/// `sk_shutdown` of a connection that its application has closed (`SHUTDOWN_MASK`).
const CLOSED: u8 = 3;
/// The bit of `sk_shutdown` of a connection that sends nothing more (`SEND_SHUTDOWN`).
const SENT_ALL: u8 = 2;
/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
/// The bit of `tcp_skb_cb.sacked` of a segment that was sent again (`TCPCB_EVER_RETRANS`). Its departure time is the last one.
const SENT_AGAIN: u8 = 0x80;
/// Levels of the tree of unacknowledged segments that are searched. A red-black tree of 2^n segments has at most 2n levels.
const LEVELS: usize = 24;
/// Bytes of a connection after which they are counted before the end of a turn.
const UNCOUNTED: u32 = 1 << 16;
/// A time or duration that is not known.
pub const UNKNOWN: u64 = 1;
/// The time of a turn that is not in the sample.
const SKIPPED: u64 = 2;

/// The turns of a connection.
#[derive(Clone, Copy)]
#[repr(C)]
struct Turns {
    /// The time of the handshake; zero if no program saw it.
    began: u64,
    /// The departure of a client's request, or the arrival of the last segment of a server's request; [`UNKNOWN`], [`SKIPPED`], or zero
    /// without one.
    first: u64,
    /// The arrival of the last segment of the response to a client; [`SKIPPED`], or zero without one.
    last: u64,
    /// The number of the next turn, for the sample, and above it 32 bits of the number of the connection.
    turn: u64,
    /// The sequence number at which the next data to send begins.
    mark: u32,
    /// The sequence number up to which sent data is counted.
    sent: u32,
    /// The sequence number up to which received data is counted.
    received: u32,
    /// The flags of [`flag`], and above them the number of turns that the present one represents.
    flags: u32,
}

mod flag {
    /// This end accepted the connection.
    pub const SERVER: u32 = 1;
    /// An end has ended the connection, and its duration is recorded.
    pub const ENDED: u32 = 2;
    /// The other end has sent everything.
    pub const FINISHED: u32 = 4;
    /// The number of bits.
    pub const BITS: u32 = 3;
}

#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "TURNS")]
static TURNS: OwnValue<Turns> = OwnValue::declared();

/// Counts by slot and shard; see [`Count`].
#[map]
static TRANSACTIONS: Counters<WORDS> = Counters::with_max_entries(1, MMAPABLE);

/// What a segment adds to the measurements; zero or false for nothing.
#[derive(Clone, Copy)]
pub struct Added {
    pub role: Role,
    /// The duration of a transaction in the sample in nanoseconds, or [`UNKNOWN`].
    pub transaction: u64,
    /// The number of transactions that it represents.
    pub weight: u32,
    /// The duration of the connection in nanoseconds.
    pub connection: u64,
    pub sent: u32,
    pub received: u32,
    pub reset: bool,
}

impl Added {
    #[inline(always)]
    const fn to(role: Role) -> Self {
        Self { role, transaction: 0, weight: 0, connection: 0, sent: 0, received: 0, reset: false }
    }
}

/// A segment that has arrived at its socket, and that TCP has not handled.
pub struct Segment {
    pub skb: SkbContext,
    /// The socket of the program's context.
    pub socket: *const bpf_sock,
    /// The same one with its kernel type.
    pub sock: Ptr<Sock>,
    pub header: TcpHeader,
    /// The time, or zero if the clock was not read.
    pub early: u64,
}

/// Advances the turns of a connection by a segment. Returns false if they have not begun.
#[inline(always)]
pub fn advance(segment: &Segment, slot: impl FnOnce() -> Slot) -> bool {
    let turns = TURNS.value(segment.socket);
    if turns.is_null() {
        return false;
    }
    // SAFETY: storage of the socket, checked for null.
    add(segment.skb, turn(unsafe { &mut *turns }, segment.sock, &segment.header, segment.early), slot);
    true
}

/// Begins the turns of a connection by a segment. Returns true if the segment advances them.
#[inline(always)]
pub fn begin(segment: &Segment, slot: impl FnOnce() -> Slot) -> bool {
    let Segment { skb, socket, sock, ref header, early } = *segment;
    let state = sock.read(&SOCK_STATE);
    // Raw sockets get segments too.
    if state == state::LISTEN || !tcp::is_connection(sock) {
        return false;
    }
    let received = untrusted(sock, &TCP_RECEIVE_NEXT);
    let now = if early == 0 { clock::monotonic() } else { early };
    let begun = |role: Role, began, sent, received| Turns {
        began,
        first: 0,
        last: 0,
        turn: sample::next() << 32,
        mark: sent,
        sent,
        received,
        flags: if matches!(role, Role::Server) { flag::SERVER } else { 0 },
    };
    let mut turns = match state {
        state::SYN_SENT => {
            // The number that follows the handshake. `snd_nxt` is set after the segment is sent (`tcp_connect`), over loopback too late.
            let next = untrusted(sock, &TCP_WRITTEN);
            if !header.has(TcpHeader::ACK) || header.acknowledged != next {
                return false;
            }
            if header.has(TcpHeader::RST) {
                let slot = slot();
                count(slot, Count::Refused);
                tcp_peers::refused(skb, slot);
                return false;
            }
            if !header.has(TcpHeader::SYN) {
                return false;
            }
            begun(Role::Client, now, next, header.sequence.wrapping_add(1))
        }
        // Clients have a record since their handshake.
        _ if untrusted(sock, &TCP_BYTES_RECEIVED) == 0 => {
            begun(Role::Server, now, untrusted(sock, &TCP_UNACKNOWLEDGED), received)
        }
        // The connection is older than the programs.
        state::ESTABLISHED | state::CLOSE_WAIT => {
            begun(role_by_ports(sock), 0, sent_until(sock, sock.read(&SOCK_SHUTDOWN), header), received)
        }
        _ => return false,
    };
    let (role, is_new) = (turns.role(), turns.began != 0);
    if TURNS.value_or(socket, &mut turns).is_null() {
        return false;
    }
    let slot = slot();
    if is_new {
        count(slot, Count::Established(role));
    }
    tcp_peers::begins(skb, role, header, slot);
    // The segment that answers a client has nothing that counts.
    state != state::SYN_SENT
}

/// Returns the role of an end whose handshake no program saw: servers usually have the lower port.
#[inline(always)]
fn role_by_ports(sock: Ptr<Sock>) -> Role {
    if sock.read(&SOCK_PORT) <= u16::from_be(sock.read(&SOCK_DPORT)) { Role::Server } else { Role::Client }
}

/// Counts a connection that ends with an error. `sock` is a trusted pointer to any socket.
#[inline(always)]
pub fn failed(sock: Ptr<Sock>) {
    if !enabled() || !tcp::is_connection(sock) || sock.read(&SOCK_ERROR) != TIMED_OUT {
        return;
    }
    let slot = owner::slot_of_owner(sock);
    let turns = TURNS.value(sock);
    if turns.is_null() {
        // An attempt expects no number yet (`tcp_connect_init`). Its state is closed by now since 6.10.
        let is_attempt = untrusted(sock, &TCP_RECEIVE_NEXT) == 0;
        return count(slot, Count::TimedOut(if is_attempt { Role::Client } else { role_by_ports(sock) }));
    }
    // SAFETY: storage of the socket, checked for null.
    let turns = unsafe { &mut *turns };
    let role = turns.role();
    count(slot, Count::TimedOut(role));
    let mut added = Added::to(role);
    added.connection = turns.end(|| clock::monotonic());
    record(added, slot);
}

/// Advances the turns of a connection.
#[inline(always)]
fn turn(turns: &mut Turns, sock: Ptr<Sock>, header: &TcpHeader, early: u64) -> Added {
    let role = turns.role();
    let mut added = Added { weight: turns.flags >> flag::BITS, ..Added::to(role) };
    let shutdown = sock.read(&SOCK_SHUTDOWN);
    let next = untrusted(sock, &TCP_RECEIVE_NEXT);
    let until = sent_until(sock, shutdown, header);
    let is_reset = header.has(TcpHeader::RST) && header.sequence == next;
    let is_end = is_reset || header.has(TcpHeader::FIN) || shutdown == CLOSED;
    let now = || if early == 0 { clock::monotonic() } else { early };
    if is_after(until, turns.mark) {
        match role {
            Role::Server => added.transaction = answers(turns, sock, header),
            Role::Client => added.transaction = asks(turns, sock, header),
        }
        turns.mark = until;
    }
    if header.data > 0 && is_after(header.end(), next) {
        match role {
            Role::Server if turns.first == 0 && !turns.is_taken() => turns.first = SKIPPED,
            Role::Server if turns.first != SKIPPED => turns.first = now(),
            Role::Client if turns.first == SKIPPED => turns.last = SKIPPED,
            Role::Client if turns.first != 0 => turns.last = now(),
            _ => {}
        }
    }
    if is_end {
        if matches!(role, Role::Client) && turns.last != 0 && added.transaction == 0 {
            added.transaction = between(turns.first, turns.last);
            turns.first = 0;
            turns.last = 0;
        }
        added.reset = is_reset && turns.flags & flag::ENDED == 0;
        added.connection = turns.end(now);
    }
    bytes(turns, &mut added, header, until, next, is_end);
    added
}

impl Turns {
    /// Returns the role of this end.
    #[inline(always)]
    const fn role(&self) -> Role {
        if self.flags & flag::SERVER != 0 { Role::Server } else { Role::Client }
    }

    /// Ends the connection. Returns its duration; zero if it has ended before, or if its handshake is unknown.
    #[inline(always)]
    fn end(&mut self, now: impl FnOnce() -> u64) -> u64 {
        if self.flags & flag::ENDED != 0 {
            return 0;
        }
        self.flags |= flag::ENDED;
        if self.began == 0 { 0 } else { between(self.began, now()) }
    }

    /// Decides if the turn that begins is measured: one of as many successive turns as a measured one represents.
    #[inline(always)]
    fn is_taken(&mut self) -> bool {
        let is_taken = sample::takes_one_of_each((self.turn >> 32) as u32, self.turn as u32);
        self.turn += 1;
        if is_taken {
            // The share may change until the end of the turn.
            self.flags = self.flags & ((1 << flag::BITS) - 1) | (sample::share() as u32) << flag::BITS;
        }
        is_taken
    }
}

/// Ends the request of a server, which has sent data since. Returns the duration, or zero without a request in the sample.
#[inline(always)]
fn answers(turns: &mut Turns, sock: Ptr<Sock>, header: &TcpHeader) -> u64 {
    let request = turns.first;
    turns.first = 0;
    if request == 0 || request == SKIPPED { 0 } else { between(request, departure(sock, turns.mark, header)) }
}

/// Begins the request of a client, which has sent data since the response to the one before. Returns the duration of the one before,
/// or zero without one in the sample.
#[inline(always)]
fn asks(turns: &mut Turns, sock: Ptr<Sock>, header: &TcpHeader) -> u64 {
    let Turns { first, last, .. } = *turns;
    // The request continues: the response has not begun.
    if first != 0 && last == 0 {
        return 0;
    }
    turns.first = if turns.is_taken() { departure(sock, turns.mark, header) } else { SKIPPED };
    turns.last = 0;
    if last == 0 { 0 } else { between(first, last) }
}

/// Takes the bytes that are not counted yet, at the end of a turn or if they are many.
#[inline(always)]
fn bytes(turns: &mut Turns, added: &mut Added, header: &TcpHeader, until: u32, next: u32, is_end: bool) {
    let sent = until.wrapping_sub(turns.sent);
    // The end of the other direction takes a sequence number too.
    let received = if turns.flags & flag::FINISHED != 0 {
        turns.received
    } else if header.has(TcpHeader::FIN) && header.sequence == next {
        turns.flags |= flag::FINISHED;
        header.end()
    } else {
        next
    };
    let arrived = received.wrapping_sub(turns.received);
    let is_due = is_end || added.transaction != 0 || sent.wrapping_add(arrived) >= UNCOUNTED;
    if is_due && (sent | arrived) >> 31 == 0 {
        added.sent = sent;
        added.received = arrived;
        turns.sent = until;
        turns.received = received;
    }
}

/// Returns the sequence number after the last byte that TCP has sent.
#[inline(always)]
fn sent_until(sock: Ptr<Sock>, shutdown: u8, header: &TcpHeader) -> u32 {
    let (next, written) = (untrusted(sock, &TCP_SEND_NEXT), untrusted(sock, &TCP_WRITTEN));
    let until =
        if is_sending(next, header) && !is_after(header.acknowledged, written) { header.acknowledged } else { next };
    // The end of a direction takes a sequence number.
    let has_ended = shutdown & SENT_ALL != 0 && until == written;
    until.wrapping_sub(has_ended.into())
}

/// Returns true if a segment acknowledges data that TCP is still sending: over loopback, the acknowledgement arrives before the function
/// that sends has returned and updates the number (`tcp_write_xmit` in net/ipv4/tcp_output.c).
#[inline(always)]
const fn is_sending(next: u32, header: &TcpHeader) -> bool {
    header.has(TcpHeader::ACK) && is_after(header.acknowledged, next)
}

/// Returns the departure time of the unacknowledged segment that has a sequence number, nanoseconds of the monotonic clock; [`UNKNOWN`] if
/// there is none, or if it was sent again (`tcp_update_skb_after_send` and `__tcp_retransmit_skb`, Linux 5.10 to 6.18).
///
/// The tree may change meanwhile: a load from any address is safe, and the caller checks the time.
#[inline(always)]
fn departure(sock: Ptr<Sock>, from: u32, header: &TcpHeader) -> u64 {
    let root = sock.read(&SOCK_UNACKNOWLEDGED);
    if root != 0 {
        let (skb, segment) = tcp::segment(root);
        // Most turns begin with a segment that no other one precedes.
        if segment.read(&TCP_START) == from && untrusted(sock, &TCP_RETRANSMITS) == 0 {
            return skb.read(&SKB_TSTAMP);
        }
        // A global function takes numbers, and the first read gave a pointer.
        let found = find_departure(sock.probed().read(&SOCK_UNACKNOWLEDGED), from);
        if found != UNKNOWN {
            return found;
        }
    }
    if is_sending(untrusted(sock, &TCP_SEND_NEXT), header) { untrusted(sock, &TCP_LAST_DEPARTURE) } else { UNKNOWN }
}

/// Searches a tree of unacknowledged segments. A global function, which the verifier follows once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_departure(root: u64, from: u32) -> u64 {
    let mut node = root;
    for _ in 0..LEVELS {
        if node == 0 || !enabled() {
            break;
        }
        let (skb, segment) = tcp::segment(node);
        if is_after(segment.read(&TCP_START), from) {
            node = skb.read(&SKB_LEFT);
        } else if !is_after(segment.read(&TCP_END), from) {
            node = skb.read(&SKB_RIGHT);
        } else if segment.read(&TCP_SACKED) & SENT_AGAIN != 0 {
            return UNKNOWN;
        } else {
            return skb.read(&SKB_TSTAMP);
        }
    }
    UNKNOWN
}

/// Returns the time between two times; [`UNKNOWN`] if one of them is, and zero if one is [`SKIPPED`]. A time of zero nanoseconds counts as
/// two, because zero is none.
#[inline(always)]
fn between(start: u64, end: u64) -> u64 {
    if start == SKIPPED || end == SKIPPED {
        0
    } else if start == UNKNOWN || end == UNKNOWN {
        UNKNOWN
    } else {
        end.wrapping_sub(start).max(2)
    }
}

/// Adds to the measurements of the slot.
#[inline(always)]
fn add(skb: SkbContext, added: Added, slot: impl FnOnce() -> Slot) {
    let Added { transaction, connection, sent, received, reset, .. } = added;
    if transaction | connection == 0 && sent | received == 0 && !reset {
        return;
    }
    let slot = slot();
    record(added, slot);
    tcp_peers::add(skb, &added, slot);
}

#[inline(always)]
fn record(added: Added, slot: Slot) {
    let Added { role, transaction, weight, connection, sent, received, reset } = added;
    let bytes = u64::from(sent) << 32 | u64::from(received);
    let end = u64::from(weight) << 32 | u64::from(slot.0) << 2 | u64::from(reset) << 1 | role as u64;
    add_to_slot(transaction, connection, bytes, end);
}

/// Adds to the measurements of a slot. `bytes` are those sent, and below those received; `end` is the weight of the transaction, the slot,
/// whether the other end reset the connection, and the role. A global function, which the verifier follows once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn add_to_slot(transaction: u64, connection: u64, bytes: u64, end: u64) -> u32 {
    if !enabled() {
        return 0;
    }
    let slot = Slot((end >> 2) as u16);
    // One branch for each role, so that each has its histogram at a constant offset.
    if end & 1 == Role::Client as u64 {
        ended(Role::Client, transaction, end >> 32, connection, slot);
    } else {
        ended(Role::Server, transaction, end >> 32, connection, slot);
    }
    let Some(counters) = SlotCounters::of(&TRANSACTIONS, slot) else { return 0 };
    counters.add(Count::Sent.index(), bytes >> 32);
    counters.add(Count::Received.index(), u64::from(bytes as u32));
    if end & 2 != 0 {
        let role = if end & 1 == Role::Client as u64 { Role::Client } else { Role::Server };
        counters.add(Count::Reset(role).index(), 1);
    }
    0
}

#[inline(always)]
fn ended(role: Role, transaction: u64, weight: u64, connection: u64, slot: Slot) {
    match transaction {
        0 => {}
        UNKNOWN => timings::lost(Series::Transaction(role), PacketLoss::MissingStart, weight),
        duration => timings::record(Series::Transaction(role), duration, weight, slot),
    }
    if connection != 0 {
        timings::record(Series::Connection(role), connection, 1, slot);
    }
}

/// Counts a connection.
#[inline(always)]
fn count(slot: Slot, what: Count) {
    if let Some(counters) = SlotCounters::of(&TRANSACTIONS, slot) {
        counters.add(what.index(), 1);
    }
}
