//! Counts of `undercurrent.network.drops`, by the kernel's reason.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Counts of one writer: of the core's reasons by their numbers, then of each subsystem all together, and of what has no
/// place of its own.
pub const COUNTS: usize = 256;
/// Reasons of the core that have a place; kernels have half as many.
pub const CORE: u32 = 240;
/// The place of what has none of its own.
pub const OTHER: u32 = COUNTS as u32 - 1;
/// A reason's subsystem stands in the bits from here on; the core is number zero (6.4 and later).
pub const SUBSYSTEM_SHIFT: u32 = 16;

/// Where a reason is counted.
#[must_use]
#[inline(always)]
pub const fn place(reason: u32) -> u32 {
    if reason < CORE {
        return reason;
    }
    match reason >> SUBSYSTEM_SHIFT {
        subsystem @ 1.. if subsystem < OTHER - CORE + 1 => CORE - 1 + subsystem,
        _ => OTHER,
    }
}

/// What one CPU counted of drops that are nobody's but the node's.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DropCells {
    /// Packets, by [`place`].
    pub counts: [u64; COUNTS],
}

const _: () = {
    assert!(size_of::<DropCells>() == 8 * COUNTS);
    assert!(place(CORE - 1) == CORE - 1 && place(CORE) == OTHER && place(u32::MAX) == OTHER);
    assert!(place(1 << SUBSYSTEM_SHIFT | 5) == CORE && place(15 << SUBSYSTEM_SHIFT) == OTHER - 1);
    assert!(place(16 << SUBSYSTEM_SHIFT) == OTHER);
};
