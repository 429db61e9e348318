//! What `undercurrent.network.transmit.duration` is made of.

use super::latency::{Transport, waiting};

/// Packets that have room in one set, as in a cache of so many ways.
pub const WAYS: usize = 4;

/// Sets of ways of a layer.
pub const SETS: usize = waiting::ENTRIES / WAYS;

/// Entries of [`waiting`], or zero.
pub type SetOfWays = [u64; WAYS];

/// The index of the set that has a packet's entry.
#[must_use]
#[inline(always)]
pub const fn set(layer: TransmitLayer, mix: u64) -> u32 {
    layer as u32 * SETS as u32 + waiting::place(mix) / WAYS as u32
}

/// A part of a packet's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransmitLayer {
    /// From when the transport protocol sends a packet until the device's qdisc gets it.
    Transport,
    /// From there until the driver gets it.
    Qdisc,
    /// From there until the driver has done with it.
    Device,
}

impl TransmitLayer {
    /// Every layer, in the order of the transmit path.
    pub const ALL: [Self; 3] = [Self::Transport, Self::Qdisc, Self::Device];

    /// The layer in a set of layers.
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What a packet passed, and under which transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Departure {
    /// The layer.
    pub layer: TransmitLayer,
    /// The transport protocol.
    pub transport: Transport,
}

/// Number of departures.
pub const DEPARTURES: usize = 6;

impl Departure {
    /// Every departure, at its own index.
    pub const ALL: [Self; DEPARTURES] = {
        let mut all = [Self { layer: TransmitLayer::Transport, transport: Transport::Tcp }; DEPARTURES];
        let mut index = 0;
        while index < DEPARTURES {
            let transport = if index % 2 == 0 { Transport::Tcp } else { Transport::Udp };
            all[index] = Self { layer: TransmitLayer::ALL[index / 2], transport };
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// The departure's number.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.layer as usize * 2 + self.transport as usize
    }
}
