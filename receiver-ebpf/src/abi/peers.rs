//! The table of edges between workloads and their peers, and the table that pairs both ends of a connection.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{histogram::HistogramCell, transactions::Role, waiting::mix_twice, workload::Slot};

/// Indices after the table: connections of edges that found no free entry, by [`Role`].
pub const OTHERS: usize = 2;
/// Entries of the table that pairs the ends of connections. A connection needs its entry from the handshake to the first response.
pub const PAIRS: usize = 16_384;
/// Consecutive entries that are searched for an edge.
pub const PROBES: u32 = 32;
/// An index that no edge has.
pub const NO_EDGE: u32 = u32::MAX;

/// The end of a connection: the workload, its role and the server's port, and whether the other end is on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct End(pub u64);

impl End {
    const PORT: u32 = 16;
    const SERVER: u64 = 1 << 32;
    const LOCAL: u64 = 1 << 33;
    /// A bit of every end: zero is no end.
    const SET: u64 = 1 << 34;

    /// Returns an end. `port` is the server's.
    #[must_use]
    #[inline(always)]
    pub const fn new(slot: Slot, role: Role, port: u16, peer_is_local: bool) -> Self {
        let server = if matches!(role, Role::Server) { Self::SERVER } else { 0 };
        let local = if peer_is_local { Self::LOCAL } else { 0 };
        Self(Self::SET | server | local | (port as u64) << Self::PORT | slot.0 as u64)
    }

    /// Returns the slot of the workload.
    #[must_use]
    #[inline(always)]
    pub const fn slot(self) -> Slot {
        Slot(self.0 as u16)
    }

    /// Returns the server's port.
    #[must_use]
    #[inline(always)]
    pub const fn port(self) -> u16 {
        (self.0 >> Self::PORT) as u16
    }

    /// Returns the role of the workload.
    #[must_use]
    #[inline(always)]
    pub const fn role(self) -> Role {
        if self.0 & Self::SERVER != 0 { Role::Server } else { Role::Client }
    }

    /// Returns true if the other end is on this host. [`Edge::peer`] is then its slot, else its address.
    #[must_use]
    #[inline(always)]
    pub const fn peer_is_local(self) -> bool {
        self.0 & Self::LOCAL != 0
    }
}

/// Returns the index at which the search for an edge begins, modulo the number of entries.
#[must_use]
#[inline(always)]
pub const fn first(end: End, peer: [u64; 2]) -> u32 {
    (mix_twice(end.0 ^ mix_twice(peer[0] ^ mix_twice(peer[1]))) >> 32) as u32
}

/// Returns an IPv4 address, in network order, as an IPv4-mapped IPv6 address.
#[must_use]
#[inline(always)]
pub const fn mapped(address: u32) -> [u64; 2] {
    let [a, b, c, d] = address.to_ne_bytes();
    [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, a, b, c, d])]
}

/// The connections of a workload with a peer, a role and a port.
///
/// A program that finds a free entry adds one to `claims`, and owns the entry if it then reads one: all kernels have atomic additions, but
/// only 5.12 and later have compare-and-swap. Two simultaneous claims may leave an entry without an owner; user space frees it. Two CPUs
/// may create equal edges at the same time.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Edge {
    /// Number of programs that claimed the entry; zero if it is free.
    pub claims: u64,
    /// Uses of the entry that have ended. User space increments it.
    pub ended: u64,
    /// One more than `ended` if the key is complete; else zero.
    pub ready: u64,
    /// The end of the workload; a part of the key.
    pub end: End,
    /// The IPv6 or IPv4-mapped address of the peer, or its slot; a part of the key.
    pub peer: [u64; 2],
    /// The amounts, by [`Amount`].
    pub amounts: [u64; AMOUNTS],
    /// The durations of transactions.
    pub durations: HistogramCell,
}

/// The counts of an edge, besides durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Transactions of unknown duration.
    Untimed,
    /// Attempts of a client that the other end refused, and connections that it reset.
    Failed,
    /// Bytes that the workload sent.
    Sent,
    /// Bytes that the workload received.
    Received,
}

/// Number of amounts.
pub const AMOUNTS: usize = 4;

/// Both ends of a connection on this host, by [`Role`]; zero for an end that is not known.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pair {
    /// The ends.
    pub ends: [u64; 2],
}

/// Cells of one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PeerCells {
    /// Events in no edge of their own, by [`PeerLoss`].
    pub lost: [u64; PEER_LOSSES],
}

/// Reasons why a transaction is in no edge, or in that of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLoss {
    /// The table of edges has no free entry.
    EdgeLimit,
    /// The entry of a new connection was replaced before its first transaction, so that a local peer counts as remote.
    Unpaired,
    /// The kernel refused storage for a connection.
    StorageRefused,
}

/// Number of reasons.
pub const PEER_LOSSES: usize = 3;

impl PeerLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; PEER_LOSSES] = [Self::EdgeLimit, Self::Unpaired, Self::StorageRefused];
}

const _: () = {
    assert!(size_of::<Edge>() == 8 * (6 + AMOUNTS) + size_of::<HistogramCell>());
    assert!(offset_of!(Edge, amounts) == 48);
    assert!(size_of::<Pair>() == 16);
};
