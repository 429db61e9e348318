//! Grouping keys of a packet, besides workload and IP version.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{interface::Interface, series::Series};

/// An attribute that divides the packets of a series into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The receiving or sending interface.
    Interface,
    /// The network namespace.
    Namespace,
}

impl Dimension {
    /// Returns the dimension's bit in the word of configured criteria, above the bits of [`super::filter::Criterion`].
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << (16 + self as u32)
    }
}

/// A group of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Group {
    /// The interface and namespace; index zero if packets are grouped by namespace only.
    pub interface: Interface,
    /// The slot of the workload.
    pub slot: u32,
}

/// Number of series with histograms for groups: the first ones of [`Series`].
pub const GROUPED: usize = Series::TRANSMIT.end;

/// Reasons why a packet counts for its workload but for no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupLoss {
    /// The hook cannot read the interface or namespace.
    UnknownInterface,
    /// The maximum number of groups exists.
    GroupLimit,
}

/// Number of reasons.
pub const GROUP_LOSSES: usize = 2;

impl GroupLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; GROUP_LOSSES] = [Self::UnknownInterface, Self::GroupLimit];
}

/// Losses on one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupCells {
    /// Packets without a group, by [`GroupLoss`].
    pub lost: [u64; GROUP_LOSSES],
}

const _: () = {
    assert!(size_of::<Group>() == 12);
    assert!(size_of::<GroupCells>() == 8 * GROUP_LOSSES);
    assert!(Series::RECEIVE.start == 0 && Series::RECEIVE.end == Series::WAIT.start);
    assert!(Series::WAIT.end == Series::TRANSMIT.start);
};
