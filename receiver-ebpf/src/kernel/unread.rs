//! Unread data of TCP connections: the arrival of the oldest unread byte in the receive queue.
//!
//! The record is in socket storage, so it is removed with its connection. Timestamps of packets cannot identify a wait: the kernel merges
//! segments and keeps the timestamp of the last one, and segments of one sender can have one timestamp.

use aya_ebpf::bindings::bpf_sock;
use undercurrent_ebpf::abi::head_of_line::is_after;

use super::{
    clock,
    constant::constants,
    fields::{
        SKB_CB, SKB_NEXT, SKB_TSTAMP, SOCK_QUEUE, SOCK_RCVQ_HEAD, SOCK_STORAGE, SkBuff, Sock, TCP_COPIED, TCP_END,
        TCP_RECEIVE_NEXT,
    },
    owner,
    pointer::Ptr,
    sample,
    storage::OwnValue,
    tcp::untrusted,
};

constants! {
    /// 1 if waits begin when the transport protocol gets a segment for its socket; else they begin in the receive queue.
    AT_TRANSPORT = "wait.at_transport";
}

/// The oldest unread byte of a connection, and its last segment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Unread {
    /// The arrival of the oldest unread byte, nanoseconds of the monotonic clock; zero if it is unknown or not measured.
    arrival: u64,
    /// Its sequence number.
    from: u64,
    /// The last segment in order at the transport protocol.
    last: Segment,
    /// The sequence number of its first byte.
    last_from: u64,
}

/// A segment at the transport protocol.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Segment {
    /// Its receive timestamp, nanoseconds of the wall clock; zero if it is unknown.
    timestamp: u64,
    /// Its arrival, nanoseconds of the monotonic clock.
    arrival: u64,
}

impl Segment {
    /// No segment.
    pub const NONE: Self = Self { timestamp: 0, arrival: 0 };

    /// Returns the time in nanoseconds that the segment with this receive timestamp waited until `now`; [`UNKNOWN`] for another segment.
    #[inline(always)]
    pub fn wait(self, timestamp: u64, now: u64) -> u64 {
        if self.timestamp == timestamp && timestamp != 0 { now.wrapping_sub(self.arrival) } else { UNKNOWN }
    }
}

impl Unread {
    /// Returns the record of a connection whose oldest unread byte arrives now.
    const fn begun(now: u64, from: u32) -> Self {
        Self { arrival: now, from: from as u64, last: Segment::NONE, last_from: 0 }
    }
}

#[unsafe(link_section = ".maps")]
#[unsafe(export_name = "UNREAD")]
static UNREAD: OwnValue<Unread> = OwnValue::declared();

/// Returns true if programs can store records, a constant to the verifier.
#[inline(always)]
pub fn is_stored() -> bool {
    owner::storage()
}

/// Stores the arrival of data if it is the oldest unread data and its wait is measured. `queued` is the number of packets in the receive
/// queue if the queue has no earlier packet. `early` is the time, or zero if the clock was not read.
///
/// `sock` is a trusted pointer to a connection, or to a subflow of Multipath TCP.
#[inline(always)]
pub fn arrived(sock: Ptr<Sock>, queued: u32, early: u64) {
    if sock.read(&SOCK_QUEUE) > queued {
        return;
    }
    let from = untrusted(sock, &TCP_COPIED);
    if !sample::takes(from) {
        return;
    }
    let now = if early == 0 { clock::monotonic() } else { early };
    let record = UNREAD.value_or(sock, &mut Unread::begun(now, from));
    if record.is_null() {
        return;
    }
    // SAFETY: storage of the socket, checked for null.
    let record = unsafe { &mut *record };
    // A record of bytes that no program saw leave the queue is outdated.
    if record.arrival == 0 || is_after(from, record.from as u32) {
        *record = Unread::begun(now, from);
    }
}

/// Returns true if waits begin when the transport protocol gets a segment for its socket, a constant to the verifier.
#[inline(always)]
pub fn begins_at_transport() -> bool {
    AT_TRANSPORT.get() != 0 && is_stored()
}

/// Stores the arrival of a segment with data at its transport protocol, if it is next in order. `from` is the sequence number of its
/// first byte. The wait of the oldest unread data begins here if the receive queue is empty. If the socket is in use, the segment
/// enters the queue later; the read that empties the queue before then finds the segment as the last one.
///
/// `socket` is the socket of the program's context, and `sock` the same one with its kernel type.
#[inline(always)]
pub fn arrives(socket: *const bpf_sock, sock: Ptr<Sock>, from: u32, timestamp: u64, now: u64) {
    if untrusted(sock, &TCP_RECEIVE_NEXT) != from {
        return;
    }
    // Data that is older than the record has an unknown arrival.
    let copied = untrusted(sock, &TCP_COPIED);
    let record = UNREAD.value_or(socket, &mut Unread::begun(0, copied));
    if record.is_null() {
        return;
    }
    // SAFETY: storage of the socket, checked for null.
    let record = unsafe { &mut *record };
    if copied == from {
        record.arrival = if sample::takes(from) { now } else { 0 };
        record.from = from.into();
    }
    record.last = Segment { timestamp, arrival: now };
    record.last_from = from.into();
}

/// The result of [`read`]: the read took no data, or its wait is not measured.
pub const NONE: u64 = u64::MAX - 1;
/// The result of [`read`]: the arrival is unknown.
pub const UNKNOWN: u64 = u64::MAX;

/// Data that a task reads from a connection.
pub trait Data {
    /// Returns the sequence number of the first byte; `None` if it is only in the record.
    fn start(&self) -> Option<u32>;

    /// Returns the sequence number after the data.
    fn end(&self) -> u32;

    /// Returns the packet that has the next byte; null if it is in the packet of the last byte.
    fn next(&self, until: u32) -> Ptr<SkBuff>;
}

/// The data of a read that has taken it from the receive queue.
pub struct Taken(pub Ptr<Sock>);

impl Data for Taken {
    #[inline(always)]
    fn start(&self) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        untrusted(self.0, &TCP_COPIED)
    }

    #[inline(always)]
    fn next(&self, _: u32) -> Ptr<SkBuff> {
        self.0.follow(&SOCK_RCVQ_HEAD)
    }
}

/// A number of bytes that are copied from the first packet of the receive queue.
pub struct Copied(pub Ptr<Sock>, pub Ptr<SkBuff>, pub u32);

impl Data for Copied {
    #[inline(always)]
    fn start(&self) -> Option<u32> {
        Some(untrusted(self.0, &TCP_COPIED))
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        untrusted(self.0, &TCP_COPIED).wrapping_add(self.2)
    }

    #[inline(always)]
    fn next(&self, until: u32) -> Ptr<SkBuff> {
        if is_after(self.1.embedded(&SKB_CB).read(&TCP_END), until) { Ptr::null() } else { self.1.follow(&SKB_NEXT) }
    }
}

/// The result of [`read`].
#[derive(Clone, Copy)]
pub struct Reading {
    /// The time in nanoseconds that the oldest byte of the data waited, or [`NONE`] or [`UNKNOWN`].
    pub wait: u64,
    /// The last segment in order at the transport protocol.
    pub last: Segment,
}

impl Reading {
    /// The result without a segment.
    #[inline(always)]
    pub const fn of(wait: u64) -> Self {
        Self { wait, last: Segment::NONE }
    }
}

/// Returns how long data that a task reads has waited. The record passes to the next byte. `early` is the time, or zero if the clock was
/// not read.
///
/// `sock` is a trusted pointer to a connection.
#[inline(always)]
pub fn read(sock: Ptr<Sock>, data: &impl Data, early: u64) -> Reading {
    let unknown = if sample::takes_all() { UNKNOWN } else { NONE };
    if sock.read(&SOCK_STORAGE) == 0 {
        return Reading::of(unknown);
    }
    // Neither the data nor the next byte is in the sample, and no event needs the last segment: the record stays without an arrival.
    if early == 0
        && let Some(start) = data.start()
        && !sample::takes(start)
        && !sample::takes(data.end())
    {
        return Reading::of(NONE);
    }
    let record = UNREAD.value(sock);
    if record.is_null() {
        return Reading::of(unknown);
    }
    // SAFETY: storage of the socket, checked for null.
    let record = unsafe { &mut *record };
    let (until, arrival, last) = (data.end(), record.arrival, record.last);
    // A peek takes nothing.
    if !is_after(until, record.from as u32) {
        return Reading { wait: NONE, last };
    }
    let rests = untrusted(sock, &TCP_RECEIVE_NEXT) != until;
    let follows = begins_at_transport() && !rests && record.last_from as u32 == until;
    if arrival == 0 && !rests && !follows {
        return Reading { wait: unknown, last };
    }
    let now = if early == 0 { clock::monotonic() } else { early };
    record.arrival = match (rests || follows) && sample::takes(until) {
        true if follows => last.arrival,
        true => arrival_of(data.next(until), arrival, now),
        false => 0,
    };
    record.from = until.into();
    Reading { wait: if arrival == 0 { unknown } else { now.wrapping_sub(arrival) }, last }
}

/// Returns the arrival of a packet in the receive queue, no earlier than that of the byte before it: the time of its receive timestamp.
/// A packet of merged segments has the timestamp of the last one.
#[inline(always)]
fn arrival_of(skb: Ptr<SkBuff>, before: u64, now: u64) -> u64 {
    if skb.is_null() {
        return before;
    }
    let received = skb.read(&SKB_TSTAMP).wrapping_sub(clock::wall(0));
    if received > before && received <= now { received } else { before }
}
