//! Whose a measurement is, as both sides know it: slots, the table that leads to them, and what the kernel tells of cgroups.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The place of a workload in every table that is kept by workload. User space assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// The node: what belongs to no workload.
    pub const NODE: Self = Self(0);
    /// The workloads beyond the limit, together.
    pub const OVERFLOW: Self = Self(1);
    /// The first slot of a workload of its own.
    pub const FIRST: Self = Self(2);
}

/// How programs find out whose a socket is.
pub mod ownership {
    /// Nobody asks.
    pub const OFF: u32 = 0;
    /// By the cgroup v2 hierarchy: the last reader's, or else the creator's, which the kernel keeps with the socket.
    pub const UNIFIED: u32 = 1;
    /// By the hierarchy of the cpu controller (cgroup v1): the last reader's or the creator's, kept by programs.
    pub const CPU: u32 = 2;
}

/// Set in the key of a network namespace, whose inode takes the low 32 bits. A cgroup's key is its id: a number of 31 bits
/// that wraps, with the count of wraps above it (`kernfs_new_node`, 5.5 and later), which does not get this far.
pub const NAMESPACE: u64 = 1 << 47;

/// Bits of a key. An entry of the table from owners to slots is one word, so that it is never seen half written: the key,
/// and the slot in the bits below it; zero where the entry is free.
pub const KEY_BITS: u32 = 48;
/// Bits of the slot in an entry.
pub const SLOT_BITS: u32 = 16;

/// An entry of the table.
#[must_use]
pub const fn entry(key: u64, slot: Slot) -> u64 {
    key << SLOT_BITS | slot.0 as u64
}

/// The slot that an entry has for a key; `None` of another key's.
#[must_use]
#[inline(always)]
pub const fn slot_of(entry: u64, key: u64) -> Option<Slot> {
    if entry >> SLOT_BITS == key { Some(Slot(entry as u16)) } else { None }
}

/// log2 of the entries of the table.
const OWNER_BITS: u32 = 14;
/// Entries of the table from owners to slots.
pub const OWNERS: usize = 1 << OWNER_BITS;

/// The two entries where a key may stand, the better one first: those that two multiplicative hashes (Knuth, The Art of
/// Computer Programming 6.4) point to, as in cuckoo hashing (Pagh and Rodler 2004).
#[must_use]
#[inline(always)]
pub const fn places(key: u64) -> [u32; 2] {
    [place(key, 0x9e37_79b9_7f4a_7c15), place(key, 0xc2b2_ae3d_27d4_eb4f)]
}

#[inline(always)]
const fn place(key: u64, multiplier: u64) -> u32 {
    (key.wrapping_mul(multiplier) >> (64 - OWNER_BITS)) as u32
}

/// Entries of the cache from sockets to slots.
pub const SOCKETS: usize = 4096;

/// An entry of the cache: a socket's cookie but for the bits that lead to the entry, the epoch in which its slot was
/// looked up, whether it is that of somebody who reads, and the slot; in one word so that it is never seen half written.
/// Cookies count up from one (`__sock_gen_cookie`), and none comes back within 2^46 sockets.
pub mod cached {
    use super::{SOCKETS, Slot};

    /// Bits of a slot.
    pub const SLOT: u32 = 13;
    /// Bits of the slot and of the mark above it.
    const MARKED: u32 = SLOT + 1;
    /// Marks a slot that was found when somebody read the socket.
    pub const READ: u64 = 1 << SLOT;
    /// Bits of an epoch.
    pub const EPOCH: u32 = 16;

    /// Where a socket's entry stands.
    #[must_use]
    #[inline(always)]
    pub const fn place(cookie: u64) -> u32 {
        cookie as u32 % SOCKETS as u32
    }

    /// What a socket's entry begins with in an epoch, without its slot.
    #[must_use]
    #[inline(always)]
    pub const fn tag(cookie: u64, epoch: u64) -> u64 {
        ((cookie / SOCKETS as u64) << EPOCH | epoch) << MARKED
    }

    /// The slot of an entry with such a tag.
    #[must_use]
    #[inline(always)]
    pub const fn slot(entry: u64, tag: u64) -> Option<Slot> {
        let slot = entry ^ tag;
        if slot >> MARKED == 0 { Some(Slot((slot & (READ - 1)) as u16)) } else { None }
    }
}

/// Why an event stands with the node although it may belong to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerLoss {
    /// Its cgroup was not in the table: not known yet, or no longer.
    Unknown,
    /// Nothing says whose the socket is: it is older than the programs, and nobody has read it since (cgroup v1).
    NoOwner,
    /// The kernel gave no room to keep a socket's reader.
    StorageRefused,
}

/// Number of reasons.
pub const OWNER_LOSSES: usize = 3;

impl OwnerLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; OWNER_LOSSES] = [Self::Unknown, Self::NoOwner, Self::StorageRefused];
}

/// What one CPU counted, by [`OwnerLoss`].
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnerCells {
    /// Events that stand with the node.
    pub lost: [u64; OWNER_LOSSES],
    /// Changes of cgroups that found no room in the ring.
    pub unheard: u64,
}

/// Bytes of a cgroup's path that fit an event, its end included.
pub const PATH_BYTES: usize = 480;

/// What happened to a cgroup.
pub mod change {
    /// It was made.
    pub const MADE: u32 = 0;
    /// It was removed.
    pub const REMOVED: u32 = 1;
    /// It has another name (cgroup v1).
    pub const RENAMED: u32 = 2;
}

/// A change of the cgroup hierarchy.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CgroupEvent {
    /// The cgroup.
    pub id: u64,
    /// What happened to it, of [`change`].
    pub change: u32,
    /// Bytes of `path` in use, the terminating zero included; negative where the kernel refused to read it.
    pub length: i32,
    /// Its path from the hierarchy's root; cut where it is longer.
    pub path: [u8; PATH_BYTES],
}

const _: () = {
    assert!(KEY_BITS + SLOT_BITS == u64::BITS);
    assert!(NAMESPACE < 1 << KEY_BITS);
    assert!(size_of::<OwnerCells>() == 8 * (OWNER_LOSSES + 1));
    assert!(size_of::<CgroupEvent>() == 16 + PATH_BYTES);
};
