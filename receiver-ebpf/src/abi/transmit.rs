//! Layers and tables of `undercurrent.network.transmit.duration`.

use super::{latency::Transport, waiting};

/// Ways of a set: entries at which a packet can be, as in a set-associative cache.
pub const WAYS: usize = 4;

/// Sets of a layer.
pub const SETS: usize = waiting::ENTRIES / WAYS;

/// A set: entries of [`waiting`], or zero.
pub type SetOfWays = [u64; WAYS];

/// Returns the index of the set for a packet's entry.
#[must_use]
#[inline(always)]
pub const fn set(layer: TransmitLayer, mix: u64) -> u32 {
    layer as u32 * SETS as u32 + waiting::index(mix) / WAYS as u32
}

/// A layer of the transmit path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransmitLayer {
    /// From the transport protocol to the device's qdisc.
    Transport,
    /// From the qdisc to the driver.
    Qdisc,
    /// From the driver to the completion.
    Device,
}

impl TransmitLayer {
    /// Every layer, in the order of the transmit path.
    pub const ALL: [Self; 3] = [Self::Transport, Self::Qdisc, Self::Device];

    /// Returns the layer's bit in a word of layers.
    #[must_use]
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A layer that a packet of a transport protocol passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransmitSeries {
    /// The layer.
    pub layer: TransmitLayer,
    /// The transport protocol.
    pub transport: Transport,
}

/// Number of series.
pub const TRANSMIT_SERIES: usize = 6;

impl TransmitSeries {
    /// Every series, at its own index.
    pub const ALL: [Self; TRANSMIT_SERIES] = {
        let mut all = [Self { layer: TransmitLayer::Transport, transport: Transport::Tcp }; TRANSMIT_SERIES];
        let mut index = 0;
        while index < TRANSMIT_SERIES {
            let transport = if index % 2 == 0 { Transport::Tcp } else { Transport::Udp };
            all[index] = Self { layer: TransmitLayer::ALL[index / 2], transport };
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// Returns the index of the series in [`Self::ALL`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.layer as usize * 2 + self.transport as usize
    }
}
