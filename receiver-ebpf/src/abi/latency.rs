//! Cells of `undercurrent.network.receive.duration`.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{histogram::HistogramCell, loss::PACKET_LOSSES};

/// Where in the receive path a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Entry of the network layer, before netfilter.
    Ip,
    /// Entry of the transport protocol.
    Transport,
    /// In the socket's receive queue.
    SocketEnqueued,
    /// Copied to the application.
    SocketRead,
}

impl Layer {
    /// Every layer, in the order of the receive path.
    pub const ALL: [Self; 4] = [Self::Ip, Self::Transport, Self::SocketEnqueued, Self::SocketRead];
}

/// The transport protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The IP version of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What a histogram of the latency map is about. The network layer has not looked at the transport protocol yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The layer reached.
    pub layer: Layer,
    /// The transport protocol, where the layer knows it.
    pub transport: Option<Transport>,
    /// The IP version.
    pub network: Network,
}

/// Number of paths.
pub const PATHS: usize = 14;

impl Path {
    /// Every path, at its own index.
    pub const ALL: [Self; PATHS] = {
        let mut all = [Self { layer: Layer::Ip, transport: None, network: Network::Ipv4 }; PATHS];
        let layers = [Layer::Transport, Layer::SocketEnqueued, Layer::SocketRead];
        let mut index = 0;
        while index < PATHS {
            let network = if index % 2 == 0 { Network::Ipv4 } else { Network::Ipv6 };
            all[index].network = network;
            if index >= 2 {
                let transport = if (index / 2) % 2 == 1 { Transport::Tcp } else { Transport::Udp };
                all[index] = Self { layer: layers[(index - 2) / 4], transport: Some(transport), network };
            }
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// A packet at the network layer.
    #[must_use]
    pub const fn ip(network: Network) -> Self {
        Self { layer: Layer::Ip, transport: None, network }
    }

    /// A packet at a layer that knows its transport protocol.
    #[must_use]
    pub const fn of(layer: Layer, transport: Transport, network: Network) -> Self {
        Self { layer, transport: Some(transport), network }
    }

    /// The path's histogram in [`LatencyCells`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        let layer = self.layer as usize * 4;
        match self.transport {
            None => self.network as usize,
            Some(transport) => layer - 2 + transport as usize * 2 + self.network as usize,
        }
    }
}

/// What one CPU recorded. Each path has one program as its writer.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LatencyCells {
    /// Durations, by path.
    pub histograms: [HistogramCell; PATHS],
    /// Packets in no histogram, by path and [`super::loss::PacketLoss`].
    pub lost: [[u64; PACKET_LOSSES]; PATHS],
}

const _: () = assert!(size_of::<LatencyCells>() == PATHS * (size_of::<HistogramCell>() + 8 * PACKET_LOSSES));
