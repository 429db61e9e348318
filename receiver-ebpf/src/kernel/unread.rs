//! Unread data of TCP connections: the arrival of the oldest unread byte in the receive queue.
//!
//! The record is in socket storage, so it is removed with its connection. Timestamps of packets cannot identify a wait: the kernel merges
//! segments and keeps the timestamp of the last one, and segments of one sender can have one timestamp.

use super::{
    clock,
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

/// The oldest unread byte of a connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Unread {
    /// Its arrival in the receive queue, nanoseconds of the monotonic clock; zero if it is unknown or not measured.
    arrival: u64,
    /// Its sequence number.
    from: u64,
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
    let record = UNREAD.value_or(sock, &mut Unread { arrival: now, from: from.into() });
    if record.is_null() {
        return;
    }
    // SAFETY: storage of the socket, checked for null.
    let record = unsafe { &mut *record };
    // A record of bytes that no program saw leave the queue is outdated.
    if record.arrival == 0 || is_after(from, record.from as u32) {
        *record = Unread { arrival: now, from: from.into() };
    }
}

/// The result of [`read`]: the read took no data, or its wait is not measured.
pub const NONE: u64 = u64::MAX - 1;
/// The result of [`read`]: the arrival is unknown.
pub const UNKNOWN: u64 = u64::MAX;

/// Data that a task reads from a connection.
pub trait Data {
    /// Returns the sequence number after the data.
    fn end(&self) -> u32;

    /// Returns the packet that has the next byte; null if it is in the packet of the last byte.
    fn next(&self, until: u32) -> Ptr<SkBuff>;
}

/// The data of a read that has taken it from the receive queue.
pub struct Taken(pub Ptr<Sock>);

impl Data for Taken {
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
    fn end(&self) -> u32 {
        untrusted(self.0, &TCP_COPIED).wrapping_add(self.2)
    }

    #[inline(always)]
    fn next(&self, until: u32) -> Ptr<SkBuff> {
        if is_after(self.1.embedded(&SKB_CB).read(&TCP_END), until) { Ptr::null() } else { self.1.follow(&SKB_NEXT) }
    }
}

/// Returns the time in nanoseconds that the oldest byte of data waited in the receive queue, or [`NONE`] or [`UNKNOWN`]. The record
/// passes to the next byte. `early` is the time, or zero if the clock was not read.
///
/// `sock` is a trusted pointer to a connection.
#[inline(always)]
pub fn read(sock: Ptr<Sock>, data: &impl Data, early: u64) -> u64 {
    let unknown = if sample::takes_all() { UNKNOWN } else { NONE };
    if sock.read(&SOCK_STORAGE) == 0 {
        return unknown;
    }
    let record = UNREAD.value(sock);
    if record.is_null() {
        return unknown;
    }
    // SAFETY: storage of the socket, checked for null.
    let record = unsafe { &mut *record };
    let (until, arrival) = (data.end(), record.arrival);
    // A peek takes nothing.
    if !is_after(until, record.from as u32) {
        return NONE;
    }
    let rests = untrusted(sock, &TCP_RECEIVE_NEXT) != until;
    if arrival == 0 && !rests {
        return unknown;
    }
    let now = if early == 0 { clock::monotonic() } else { early };
    let next = if rests && sample::takes(until) { arrival_of(data.next(until), arrival, now) } else { 0 };
    *record = Unread { arrival: next, from: until.into() };
    if arrival == 0 { unknown } else { now.wrapping_sub(arrival) }
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

/// Returns true if a sequence number is after another one.
#[inline(always)]
const fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}
