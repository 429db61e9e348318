//! What packets are told apart by beside workload and IP version, as both sides know it.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{interface::Interface, latency::Series};

/// What makes packets of one series different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The interface that they came in by, or leave by.
    Interface,
    /// The network namespace that they are in.
    Namespace,
}

impl Dimension {
    /// Its bit in the word that says which are asked for, above those of [`super::filter::Criterion`].
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << (16 + self as u32)
    }
}

/// What tells packets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Group {
    /// Where they came in, or leave; its index is zero where packets are told apart by namespace alone.
    pub interface: Interface,
    /// The slot of the workload that they belong to.
    pub slot: u32,
}

/// Series that groups have histograms of: the first ones of [`Series`].
pub const GROUPED: usize = Series::TRANSMIT.end;

/// Why a packet is with its workload and in no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupLoss {
    /// Where it came in, or leaves, cannot be told at this layer.
    Unknown,
    /// There are as many groups as there may be.
    Limit,
}

/// Number of reasons.
pub const GROUP_LOSSES: usize = 2;

impl GroupLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; GROUP_LOSSES] = [Self::Unknown, Self::Limit];
}

/// What one CPU counted, by [`GroupLoss`].
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupCells {
    /// Packets that are in no group.
    pub lost: [u64; GROUP_LOSSES],
}

const _: () = {
    assert!(size_of::<Group>() == 12);
    assert!(size_of::<GroupCells>() == 8 * GROUP_LOSSES);
    assert!(Series::RECEIVE.start == 0 && Series::RECEIVE.end == Series::WAIT.start);
    assert!(Series::WAIT.end == Series::TRANSMIT.start);
};
