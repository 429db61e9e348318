//! Attribution to workloads: slots, the table from owners to slots, and events of cgroups.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The index of a workload in all tables. User space assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Slot(pub u16);

impl Slot {
    /// The node: events that belong to no workload.
    pub const NODE: Self = Self(0);
    /// All workloads beyond the limit.
    pub const OVERFLOW: Self = Self(1);
    /// The first slot of a single workload.
    pub const FIRST: Self = Self(2);
}

/// Methods to find the owner of a socket.
pub mod ownership {
    /// Attribution is off.
    pub const OFF: u32 = 0;
    /// By the cgroup v2 hierarchy. The kernel keeps the creator, and socket storage keeps a different reader.
    pub const UNIFIED: u32 = 1;
    /// By the hierarchy of the cpu controller (cgroup v1). Socket storage keeps the last reader or the creator.
    pub const CPU: u32 = 2;
}

/// Bit in the key of a network namespace; the low 32 bits are the namespace's inode. The key of a cgroup is its id: 31 bits that
/// wrap around, below a generation (`kernfs_new_node`, 5.5 and later) that does not reach this bit.
pub const NAMESPACE: u64 = 1 << 47;

/// Bits of a key. An entry of the table is one word, so programs never read half of it: the key above the slot, or zero if
/// the entry is free.
pub const KEY_BITS: u32 = 48;
/// Bits of the slot in an entry.
pub const SLOT_BITS: u32 = 16;

/// Returns an entry of the table.
#[must_use]
pub const fn entry(key: u64, slot: Slot) -> u64 {
    key << SLOT_BITS | slot.0 as u64
}

/// Returns the slot of an entry; `None` if the entry has another key.
#[must_use]
#[inline(always)]
pub const fn slot_of(entry: u64, key: u64) -> Option<Slot> {
    if entry >> SLOT_BITS == key { Some(Slot(entry as u16)) } else { None }
}

/// log2 of the entries of the table.
const OWNER_BITS: u32 = 14;
/// Entries of the table from owners to slots.
pub const OWNERS: usize = 1 << OWNER_BITS;

/// Returns the indices of the two possible entries of a key, in order of lookup: two multiplicative hashes (Knuth, The Art of
/// Computer Programming 6.4), as in cuckoo hashing (Pagh and Rodler 2004).
#[must_use]
#[inline(always)]
pub const fn indices(key: u64) -> [u32; 2] {
    [index(key, 0x9e37_79b9_7f4a_7c15), index(key, 0xc2b2_ae3d_27d4_eb4f)]
}

#[inline(always)]
const fn index(key: u64, multiplier: u64) -> u32 {
    (key.wrapping_mul(multiplier) >> (64 - OWNER_BITS)) as u32
}

/// Entries of the cache from sockets to slots.
pub const SOCKETS: usize = 4096;

/// Entries of the cache. An entry is one word, so programs never read half of it. From the top: the socket's cookie without the
/// bits of the index, the epoch of the lookup, a mark for slots of readers, and the slot. Cookies count up from one
/// (`__sock_gen_cookie`) and repeat after 2^46 sockets at the earliest.
pub mod cached {
    use super::{SOCKETS, Slot};

    /// Bits of a slot.
    pub const SLOT: u32 = 13;
    /// Bits of the slot and the mark.
    const MARKED: u32 = SLOT + 1;
    /// The mark of a slot that was looked up at a read.
    pub const READ: u64 = 1 << SLOT;
    /// Bits of an epoch.
    pub const EPOCH: u32 = 16;

    /// Returns the index of a socket's entry.
    #[must_use]
    #[inline(always)]
    pub const fn index(cookie: u64) -> u32 {
        cookie as u32 % SOCKETS as u32
    }

    /// Returns a socket's entry in an epoch, without mark and slot.
    #[must_use]
    #[inline(always)]
    pub const fn tag(cookie: u64, epoch: u64) -> u64 {
        ((cookie / SOCKETS as u64) << EPOCH | epoch) << MARKED
    }

    /// Returns the slot of an entry; `None` if the entry has another tag.
    #[must_use]
    #[inline(always)]
    pub const fn slot(entry: u64, tag: u64) -> Option<Slot> {
        let slot = entry ^ tag;
        if slot >> MARKED == 0 { Some(Slot((slot & (READ - 1)) as u16)) } else { None }
    }
}

/// Reasons why an event counts for the node although it may belong to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerLoss {
    /// The table lacks the cgroup: it is new or removed.
    UnknownOwner,
    /// The socket has no known owner: it is older than the programs and was not read since (cgroup v1).
    NoOwner,
    /// The kernel refused the storage for a socket's reader.
    StorageRefused,
}

/// Number of reasons.
pub const OWNER_LOSSES: usize = 3;

impl OwnerLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; OWNER_LOSSES] = [Self::UnknownOwner, Self::NoOwner, Self::StorageRefused];
}

/// Losses on one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnerCells {
    /// Events that count for the node, by [`OwnerLoss`].
    pub lost: [u64; OWNER_LOSSES],
    /// Changes of cgroups that did not fit into the ring.
    pub unheard: u64,
}

/// Maximum bytes of a cgroup's path in an event, with the terminating zero.
pub const PATH_BYTES: usize = 480;

/// Changes of a cgroup.
pub mod change {
    /// The cgroup was created.
    pub const MADE: u32 = 0;
    /// The cgroup was removed.
    pub const REMOVED: u32 = 1;
    /// The cgroup was renamed (cgroup v1).
    pub const RENAMED: u32 = 2;
}

/// A change of the cgroup hierarchy.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CgroupEvent {
    /// The cgroup's id.
    pub id: u64,
    /// The CPU time of a removed cgroup and its descendants, nanoseconds; zero if it is unknown.
    pub cpu_time: u64,
    /// One of [`change`].
    pub change: u32,
    /// Used bytes of `path`, with the terminating zero; negative if the kernel could not read the path.
    pub length: i32,
    /// The path from the hierarchy's root, truncated if it is longer.
    pub path: [u8; PATH_BYTES],
}

const _: () = {
    assert!(KEY_BITS + SLOT_BITS == u64::BITS);
    assert!(NAMESPACE < 1 << KEY_BITS);
    assert!(size_of::<OwnerCells>() == 8 * (OWNER_LOSSES + 1));
    assert!(size_of::<CgroupEvent>() == 24 + PATH_BYTES);
};
