//! `undercurrent.network.receive.driver.duration`: conversion of a NIC's timestamps to the wall clock, and the cells.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{by_cpu::Entry, histogram::HistogramCell};

/// Maximum number of NICs.
pub const NICS: usize = 8;

/// Converts a NIC's clock to the wall clock, near a reading of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Conversion {
    /// The reading, nanoseconds of the NIC's clock.
    pub reading: u64,
    /// Wall clock minus the NIC's clock at the reading, in nanoseconds modulo 2^64.
    pub offset: u64,
    /// Rate of the wall clock relative to the NIC's clock, minus one, in units of 2^-32 (two's complement).
    pub rate: u64,
}

impl Conversion {
    /// log2 of the conversion's range around the reading, in nanoseconds: eight seconds.
    const REACH: u32 = 33;
    /// log2 of the highest rate, 1/256: the product with a time in range fits 64 bits.
    const FASTEST: u32 = 24;

    /// Returns true if the rate is in range. A greater rate means a defective clock.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        (self.rate as i64).unsigned_abs() < 1 << Self::FASTEST
    }

    /// Converts a timestamp of the NIC to nanoseconds of the wall clock; `None` too far from the reading.
    #[must_use]
    #[inline(always)]
    pub const fn wall(&self, timestamp: u64) -> Option<u64> {
        let elapsed = timestamp.wrapping_sub(self.reading);
        if elapsed.wrapping_add(1 << Self::REACH) >> (Self::REACH + 1) != 0 {
            return None;
        }
        let gained = (elapsed as i64).wrapping_mul(self.rate as i64) >> 32;
        Some(timestamp.wrapping_add(self.offset).wrapping_add(gained as u64))
    }
}

/// The clock of a NIC. User space writes the unused conversion, then `current`. A program that has begun to read a
/// conversion finishes before user space writes it again.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NicClock {
    /// Index of the current conversion plus one; zero if there is none.
    pub current: u64,
    /// The conversions.
    pub conversions: [Conversion; 2],
}

/// Reasons why a packet with a timestamp of its NIC is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverLoss {
    /// The kernel set no timestamp.
    NoTimestamp,
    /// The kernel's timestamp is before the NIC's: the conversion is less exact than the duration, or a clock was set.
    Negative,
    /// There is no conversion for that time.
    NoClock,
    /// The driver stored its own data instead of the timestamp.
    TimestampOverwritten,
    /// The filter depends on the packet's socket, which is not known yet.
    NotFilterable,
}

/// Number of reasons.
pub const DRIVER_LOSSES: usize = 5;

impl DriverLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; DRIVER_LOSSES] =
        [Self::NoTimestamp, Self::Negative, Self::NoClock, Self::TimestampOverwritten, Self::NotFilterable];
}

/// Cells of one NIC on one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NicCells {
    /// Time from the NIC's timestamp to the kernel's.
    pub duration: HistogramCell,
    /// Packets that are not measured, by [`DriverLoss`].
    pub lost: [u64; DRIVER_LOSSES],
}

/// Cells of all NICs on one CPU.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DriverCells {
    /// The NICs, by index.
    pub nics: [NicCells; NICS],
}

const _: () = {
    assert!(size_of::<Conversion>() == 24);
    assert!(size_of::<NicClock>() == 56);
    assert!(size_of::<DriverCells>().is_multiple_of(align_of::<Entry<u64>>()));
    assert!(size_of::<DriverCells>() == NICS * (size_of::<HistogramCell>() + 8 * DRIVER_LOSSES));
};
