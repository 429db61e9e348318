//! Keys of the filter for packets.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An attribute that the filter can check. The filter selects a packet if all configured criteria do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Criterion {
    /// The receiving or sending interface.
    Interface,
    /// The network namespace.
    Namespace,
    /// The local port.
    Port,
    /// The process that reads the packet.
    Process,
    /// The workload of the packet.
    Workload,
    /// The number of packets in the socket's receive queue.
    Queue,
}

impl Criterion {
    /// Returns the criterion's bit in the word of configured criteria.
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A value of a criterion that selects packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct FilterKey {
    /// The number of the [`Criterion`].
    criterion: u32,
    /// For an interface, the inode of its namespace: interface indices are local to a namespace.
    namespace: u32,
    /// An interface index, a namespace's inode, a port, a process id or a workload's slot.
    number: u32,
}

impl FilterKey {
    /// Returns the key of any criterion except an interface.
    #[must_use]
    #[inline(always)]
    pub const fn of(criterion: Criterion, number: u32) -> Self {
        Self { criterion: criterion as u32, namespace: 0, number }
    }

    /// Returns the key of an interface in a namespace.
    #[must_use]
    #[inline(always)]
    pub const fn interface(namespace: u32, index: u32) -> Self {
        Self { criterion: Criterion::Interface as u32, namespace, number: index }
    }
}

const _: () = assert!(size_of::<FilterKey>() == 12);
