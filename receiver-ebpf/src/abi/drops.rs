//! Counts of `undercurrent.network.drops`, by the kernel's reason.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Counts of one CPU or workload: one for each reason of the core, then one for each subsystem, then one for all others.
pub const COUNTS: usize = 256;
/// Number of counts for reasons of the core. Kernels have half as many reasons.
pub const CORE: u32 = 240;
/// Index of the count for all others.
pub const OTHER: u32 = COUNTS as u32 - 1;
/// Position of the subsystem in a reason (6.4 and later). The core is subsystem zero.
pub const SUBSYSTEM_SHIFT: u32 = 16;

/// Returns the index of a reason's count.
#[must_use]
#[inline(always)]
pub const fn index(reason: u32) -> u32 {
    if reason < CORE {
        return reason;
    }
    match reason >> SUBSYSTEM_SHIFT {
        subsystem @ 1.. if subsystem < OTHER - CORE + 1 => CORE - 1 + subsystem,
        _ => OTHER,
    }
}

/// Drops on one CPU that belong to the node.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DropCells {
    /// Packets, by [`index`].
    pub counts: [u64; COUNTS],
}

const _: () = {
    assert!(size_of::<DropCells>() == 8 * COUNTS);
    assert!(index(CORE - 1) == CORE - 1 && index(CORE) == OTHER && index(u32::MAX) == OTHER);
    assert!(index(1 << SUBSYSTEM_SHIFT | 5) == CORE && index(15 << SUBSYSTEM_SHIFT) == OTHER - 1);
    assert!(index(16 << SUBSYSTEM_SHIFT) == OTHER);
};
