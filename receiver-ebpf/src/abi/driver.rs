//! `undercurrent.network.receive.driver.duration`: what brings a network card's hardware stamps to the wall clock, and what
//! came of them.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::histogram::HistogramCell;

/// Network cards that have places of their own.
pub const CARDS: usize = 8;

/// How the wall clock follows from a card's clock around a reading of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Conversion {
    /// The reading, nanoseconds of the card's clock.
    pub reading: u64,
    /// What to add to the card's clock at the reading to get the wall clock, in nanoseconds modulo 2^64.
    pub offset: u64,
    /// By how much faster the wall clock is, in units of 2^-32, in two's complement.
    pub rate: u64,
}

impl Conversion {
    /// log2 of how far from a reading it holds, in nanoseconds: eight seconds.
    const REACH: u32 = 33;
    /// log2 of the fastest rate, a 256th: the product with a time in reach fits 64 bits.
    const FASTEST: u32 = 24;

    /// Whether clocks can run so far apart. No card's does that works.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        (self.rate as i64).unsigned_abs() < 1 << Self::FASTEST
    }

    /// The wall clock at a time of the card's clock, in nanoseconds; `None` too far from the reading.
    #[must_use]
    #[inline(always)]
    pub const fn wall(&self, stamp: u64) -> Option<u64> {
        let elapsed = stamp.wrapping_sub(self.reading);
        if elapsed.wrapping_add(1 << Self::REACH) >> (Self::REACH + 1) != 0 {
            return None;
        }
        let gained = (elapsed as i64).wrapping_mul(self.rate as i64) >> 32;
        Some(stamp.wrapping_add(self.offset).wrapping_add(gained as u64))
    }
}

/// A card's clock. User space writes the conversion that is not in use, and then which one is: a program that has begun to
/// read one is done before that is written again.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CardClock {
    /// One more than the index of the conversion in use; zero where none is.
    pub current: u64,
    /// The conversions.
    pub conversions: [Conversion; 2],
}

/// Why a packet that the card stamped is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverLoss {
    /// The kernel did not stamp it.
    NoStamp,
    /// By the clocks it was in the kernel before it was at the card: they are less exact than the time between, or were set.
    Negative,
    /// How the card's clock relates to the wall clock is not known for then.
    NoClock,
    /// The driver left its own notes in the place of the stamp.
    DriverNotes,
    /// Whether the filter chooses it cannot be told before its socket is known.
    Unfiltered,
}

/// Number of reasons.
pub const DRIVER_LOSSES: usize = 5;

impl DriverLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; DRIVER_LOSSES] =
        [Self::NoStamp, Self::Negative, Self::NoClock, Self::DriverNotes, Self::Unfiltered];
}

/// What one CPU recorded of one card.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CardCells {
    /// Time from the card's stamp to the kernel's.
    pub duration: HistogramCell,
    /// Packets that are not measured, by [`DriverLoss`].
    pub lost: [u64; DRIVER_LOSSES],
}

/// What one CPU recorded, by the card's place.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DriverCells {
    /// The cards.
    pub cards: [CardCells; CARDS],
}

const _: () = {
    assert!(size_of::<Conversion>() == 24);
    assert!(size_of::<CardClock>() == 56);
    assert!(size_of::<DriverCells>() == CARDS * (size_of::<HistogramCell>() + 8 * DRIVER_LOSSES));
};
