//! Which packets are measured, as both sides know it.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What packets are chosen by. A packet is measured where all of those that are asked for choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Criterion {
    /// The interface that it came in by, or leaves by.
    Interface,
    /// The network namespace that it is in.
    Namespace,
    /// The local port.
    Port,
    /// The process that reads it.
    Process,
    /// The workload that it belongs to.
    Workload,
    /// How many packets are in the socket's receive queue.
    Queue,
}

impl Criterion {
    /// Its bit in the word that says which are asked for.
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A value of a criterion that chooses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Choice {
    /// The number of the [`Criterion`].
    criterion: u32,
    /// Of an interface, its namespace's inode: interfaces are numbered by namespace.
    namespace: u32,
    /// An interface's index, a namespace's inode, a port, a process's id or a workload's slot.
    number: u32,
}

impl Choice {
    /// All of one criterion's but an interface.
    #[must_use]
    #[inline(always)]
    pub const fn of(criterion: Criterion, number: u32) -> Self {
        Self { criterion: criterion as u32, namespace: 0, number }
    }

    /// An interface of a namespace.
    #[must_use]
    #[inline(always)]
    pub const fn interface(namespace: u32, index: u32) -> Self {
        Self { criterion: Criterion::Interface as u32, namespace, number: index }
    }
}

const _: () = assert!(size_of::<Choice>() == 12);
