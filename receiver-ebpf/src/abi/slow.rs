//! Slow packets: the times at which a packet reached the layers, and the event of a selected packet.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::waiting;

/// Entries of a CPU for packets before their socket's queue. A softirq delivers packets in batches of up to 64 (`NAPI_POLL_WEIGHT`).
pub const PASSING: usize = 64;

/// Returns the index of a packet's entry. A hash, because the lowest bits of timestamps of coarse clocks repeat: a clock of 25 MHz has
/// eight values of the lowest six bits.
#[must_use]
#[inline(always)]
pub const fn passing(timestamp: u64) -> usize {
    (waiting::mix(timestamp) >> (u64::BITS - PASSING.ilog2())) as usize
}

/// A packet before its socket's queue.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Passage {
    /// The packet's receive timestamp.
    pub timestamp: u64,
    /// The times at `ip` and `transport`, as in [`Record`].
    pub times: [u64; 2],
}

/// Entries of a CPU for packets from senders on this node. A softirq passes at most this many from `ip` on at once (`GRO_NORMAL_BATCH`).
pub const LOCAL_PACKETS: usize = 8;

/// A packet from a sender on this node, at `ip`. It still has its departure time instead of a receive timestamp.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LocalPacket {
    /// The packet's address, combined with the hash of its flow: addresses are reused.
    pub packet: u64,
    /// The time at which the sender's TCP released the packet, nanoseconds of the monotonic clock.
    pub time: u64,
}

/// Entries for datagrams from senders on this node, by [`datagram::index`].
pub const DATAGRAMS: usize = 4096;

/// A datagram from a sender on this node.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Datagram {
    /// The time at which UDP released the datagram, nanoseconds of the monotonic clock.
    pub time: u64,
    /// The key, combined with the time, so words of two datagrams are not taken for an entry of one.
    pub check: u64,
}

/// The table of datagrams.
pub mod datagram {
    use super::{DATAGRAMS, waiting};

    /// Returns the key of the datagram with an identity, which a later packet may reuse, and a source port.
    #[must_use]
    #[inline(always)]
    pub const fn key(identity: u64, port: u16) -> u64 {
        waiting::mix_twice(identity ^ (port as u64) << 48)
    }

    /// Returns the index of a key.
    #[must_use]
    #[inline(always)]
    pub const fn index(key: u64) -> u32 {
        key as u32 & (DATAGRAMS as u32 - 1)
    }
}

/// The scratch buffer and the counts of one CPU. A softirq handles a packet on one CPU up to its socket's queue.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlowCells {
    /// Packets on their way, indexed by [`passing`].
    pub passing: [Passage; PASSING],
    /// Packets from senders on this node, indexed by bits of the address.
    pub local: [LocalPacket; LOCAL_PACKETS],
    /// Selected packets that did not fit into the ring.
    pub full: u64,
}

/// The bit of a sending time in the place of the time at `ip`.
pub const SENT_HERE: u64 = 1 << 63;

/// The path of a packet in its socket's queue. Each word contains the mix of the packet's timestamp (see [`waiting::mix`]), so words
/// of two packets are not taken for a record of one.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// The time of arrival in the queue, nanoseconds of the monotonic clock; zero if the record is free.
    pub enqueued: u64,
    /// The time of arrival, combined with the mix.
    pub check: u64,
    /// The times at `ip` and `transport`, combined with the mix. A time of zero is unknown. With [`SENT_HERE`], the first is the sending time
    /// of a packet from a sender on this node.
    pub passed: [u64; 2],
}

/// The records at an index. An arriving packet takes the first. The record that it replaces moves to the second, so that a packet with a
/// long wait keeps its record.
pub type Records = [Record; 2];

/// Records of packets that wait for their readers.
pub mod record {
    use super::waiting;

    /// Number of indices.
    pub const ENTRIES: usize = waiting::ENTRIES;
    /// A second record that is older, in nanoseconds, is free: its packet may never be read.
    const EXPIRED: u64 = 10_000_000_000;

    /// Returns true if a second record that arrived at `enqueued` is replaced. One packet in 64 replaces a record of a waiting packet: while
    /// more packets wait than there are records, records are a sample of them.
    #[must_use]
    #[inline(always)]
    pub const fn is_replaced(enqueued: u64, now: u64, mix: u64) -> bool {
        now.wrapping_sub(enqueued) >= EXPIRED || mix & (63 << 32) == 0
    }
}

/// The reason why a packet is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It took longer than the threshold.
    Slow,
    /// It is one of the uniform share.
    Uniform,
}

/// The selection of the packets of one workload.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlowOwner {
    /// The threshold in nanoseconds, which user space sets. A slow packet exceeds it and the threshold of all workloads.
    pub threshold: u64,
    /// The time at which all admitted events are paid for, nanoseconds of the monotonic clock, by [`Choice`].
    pub paid: [u64; CHOICES],
    /// The [period](Sharing::period) of the last selected packet, by [`Choice`].
    pub period: [u64; CHOICES],
    /// Selected packets beyond the budget, by [`Choice`].
    pub over_budget: [u64; CHOICES],
}

impl SlowOwner {
    /// Number of words.
    pub const WORDS: usize = size_of::<Self>() / size_of::<u64>();
    /// The index of the word with the threshold.
    pub const THRESHOLD: usize = offset_of!(Self, threshold) / size_of::<u64>();
    /// The index of the first word with packets beyond the budget.
    pub const OVER_BUDGET: usize = offset_of!(Self, over_budget) / size_of::<u64>();
}

/// The workloads that share a budget. Several CPUs write without atomic exchanges, so a count can be wrong for one period.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sharing {
    /// The number of the current period.
    pub period: u64,
    /// The number of workloads that have a selected packet in this period so far.
    pub current: u64,
    /// This number of the period before.
    pub previous: u64,
}

impl Sharing {
    /// Returns the number of the period at a time in nanoseconds. A period has 2^30 ns, about a second.
    #[must_use]
    #[inline(always)]
    pub const fn period(now: u64) -> u64 {
        now >> 30
    }

    /// Adds a workload whose last selected packet had the period `last`. Returns the number of workloads that share the budget.
    #[inline(always)]
    pub fn add(&mut self, period: u64, last: u64) -> u64 {
        if self.period != period {
            self.previous = if self.period.wrapping_add(1) == period { self.current } else { 0 };
            self.current = 0;
            self.period = period;
        }
        if last != period {
            self.current += 1;
        }
        if self.current > self.previous { self.current } else { self.previous }
    }
}

/// Returns the bits of a timestamp's [mix](super::waiting::mix) that are zero in one of 2^`exponent` packets, at most 2^24. The
/// lowest eight bits of a mix depend on few bits of the timestamp.
#[must_use]
pub const fn uniform_mask(exponent: u32) -> u32 {
    ((1 << exponent) - 1) << 8
}

/// Number of reasons.
pub const CHOICES: usize = 2;

/// Bits of [`SlowPacket::flags`].
pub mod flag {
    /// The packet is one of the uniform share, and not slow.
    pub const UNIFORM: u8 = 1;
    /// The record of the path is known.
    pub const RECORDED: u8 = 2;
}

/// The last wakeup of a task.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Wakeup {
    /// The time of the wakeup, nanoseconds of the monotonic clock.
    pub woken: u64,
    /// The time at which the task got a CPU after it; zero if it has had none, or if it had not left its CPU.
    pub running: u64,
    /// Id of the task.
    pub task: u64,
}

/// Number of wakeups that are kept. A task replaces another one with an equal remainder.
pub const WAKEUPS: usize = 8192;

/// Most bytes of payload in an event.
pub const PAYLOAD: usize = 4096;

/// Most bytes of the value of a `traceparent` in an event: the 55 characters of version 00, and one more. An invalid value of this length
/// is invalid with any further characters, and so is a valid one.
pub const VALUE: usize = 56;

/// A selected packet. The first [`SlowPacket::length`] bytes of the data that the application read may follow, or of the value of its
/// `traceparent`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlowPacket {
    /// The receive timestamp, nanoseconds of the wall clock.
    pub timestamp: u64,
    /// The time of the last layer, nanoseconds of the monotonic clock.
    pub now: u64,
    /// The offset between the clocks that the program used.
    pub offset: u64,
    /// The time of arrival in the socket's queue, nanoseconds of the monotonic clock; only if [`flag::RECORDED`] is set.
    pub enqueued: u64,
    /// The time at which a sender on this node released the packet, nanoseconds of the monotonic clock; zero if unknown.
    pub sent: u64,
    /// The nanoseconds of a forwarded packet on this host before its receive timestamp; zero if it was not forwarded, or if unknown.
    pub host: u64,
    /// The times at `ip` and `transport`, nanoseconds of the monotonic clock; zero if unknown.
    pub passed: [u64; 2],
    /// The last wakeup of the reading task and the time at which it got a CPU, as in [`Wakeup`]. Zero if unknown.
    pub reader: [u64; 2],
    /// Local and peer address: IPv6 in network order, or IPv4 in the first four bytes.
    pub addresses: [[u64; 2]; 2],
    /// Name of the reading process, the first 16 bytes.
    pub process_name: [u64; 2],
    /// Local and peer port.
    pub ports: [u16; 2],
    /// Id of the reading process; zero if no process reads.
    pub process: u32,
    /// The group, or [`super::ABSENT`].
    pub group: u32,
    /// Bytes of payload after the event.
    pub length: u32,
    /// The slot of the workload.
    pub slot: u16,
    /// Index of the last layer in [`super::latency::ReceivePoint::ALL`].
    pub point: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Unused.
    pub padding: u32,
}

const _: () = {
    assert!(size_of::<SlowCells>() == PASSING * 24 + LOCAL_PACKETS * 16 + 8);
    assert!(size_of::<SlowOwner>() == 56 && size_of::<Sharing>() == 24);
    assert!(SlowOwner::THRESHOLD == 0 && SlowOwner::OVER_BUDGET == 5);
    assert!(size_of::<Record>() == 32 && PASSING.is_power_of_two());
    assert!(size_of::<Datagram>() == 16 && DATAGRAMS.is_power_of_two());
    assert!(size_of::<Wakeup>() == 24 && WAKEUPS.is_power_of_two());
    assert!(size_of::<SlowPacket>() == 64 + 16 + 32 + 16 + 24);
    assert!(record::is_replaced(0, 1 << 40, 1 << 32) && !record::is_replaced(1, 3_000_001, 1 << 32));
    assert!(record::is_replaced(1, 3_000_001, 1 << 40));
};
