//! Cells of `undercurrent.network.receive.duration`, `undercurrent.network.receive.wait.duration` and
//! `undercurrent.tcp.rtt`, `undercurrent.network.transmit.duration`.

use core::{mem::size_of, ops::Range};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    histogram::HistogramCell,
    loss::PACKET_LOSSES,
    transmit::{DEPARTURES, Departure},
};

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

impl Network {
    /// Both versions, each at its own index.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];
}

/// A way into the host, up to a layer. The network layer has not looked at the transport protocol yet.
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

    /// The path's number.
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

/// What a histogram is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// The time from a packet's receive timestamp to the end of a path.
    Receive(Path),
    /// The time from a packet's arrival in its socket's queue until it was read.
    Wait(Transport, Network),
    /// The time that a packet took for a part of its way out.
    Transmit(Departure),
    /// TCP's smoothed round-trip time, at the delivery of data.
    Rtt(Network),
}

/// Number of series.
pub const SERIES: usize = Series::RTT.end;
const WAITS: usize = 4;

impl Series {
    /// The indices of [`Self::Receive`].
    pub const RECEIVE: Range<usize> = 0..PATHS;
    /// The indices of [`Self::Wait`].
    pub const WAIT: Range<usize> = Self::RECEIVE.end..Self::RECEIVE.end + WAITS;
    /// The indices of [`Self::Transmit`].
    pub const TRANSMIT: Range<usize> = Self::WAIT.end..Self::WAIT.end + DEPARTURES;
    /// The indices of [`Self::Rtt`].
    pub const RTT: Range<usize> = Self::TRANSMIT.end..Self::TRANSMIT.end + Network::ALL.len();

    /// Every series, at its own index.
    pub const ALL: [Self; SERIES] = {
        let mut all = [Self::Receive(Path::ALL[0]); SERIES];
        let mut index = 0;
        while index < SERIES {
            all[index] = if index < Self::RECEIVE.end {
                Self::Receive(Path::ALL[index])
            } else if index < Self::WAIT.end {
                let Path { transport, network, .. } = Path::ALL[index - WAITS];
                Self::Wait(transport.unwrap(), network)
            } else if index < Self::TRANSMIT.end {
                Self::Transmit(Departure::ALL[index - Self::TRANSMIT.start])
            } else {
                Self::Rtt(Network::ALL[index - Self::RTT.start])
            };
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// The series' histogram in [`LatencyCells`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        match self {
            Self::Receive(path) => path.index(),
            Self::Wait(transport, network) => WAITS + Path::of(Layer::SocketRead, transport, network).index(),
            Self::Transmit(departure) => Self::TRANSMIT.start + departure.index(),
            Self::Rtt(network) => Self::RTT.start + network as usize,
        }
    }
}

/// What one CPU recorded. Each series has one program as its writer.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LatencyCells {
    /// Durations, by series.
    pub histograms: [HistogramCell; SERIES],
    /// Packets in no histogram, by series and [`super::loss::PacketLoss`].
    pub lost: [[u64; PACKET_LOSSES]; SERIES],
}

const _: () = assert!(size_of::<LatencyCells>() == SERIES * (size_of::<HistogramCell>() + 8 * PACKET_LOSSES));

/// Where packets that wait are remembered: an entry for each value of some bits of a stamp's mix, or of an address's.
///
/// An entry has more of these bits above [`waiting::TIME`] bits of the monotonic clock, in nanoseconds. Of two
/// packets with one place the later one has it, and the earlier one's wait is not known; a table may have
/// [several places](super::transmit::WAYS) for one value.
pub mod waiting {
    /// Entries.
    pub const ENTRIES: usize = 1 << PLACE;
    /// Bits of an entry that hold the time: eighteen minutes.
    pub const TIME: u32 = 40;
    /// Bits of a mix that say the place.
    const PLACE: u32 = 14;

    /// Spreads a stamp over all bits: the golden ratio's multiple (Knuth, The Art of Computer Programming, 6.4).
    #[must_use]
    #[inline(always)]
    pub const fn mix(stamp: u64) -> u64 {
        stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The same where numbers lie in patterns that one multiple keeps: the addresses of packets, in runs, and stamps at even distances.
    #[must_use]
    #[inline(always)]
    pub const fn mix_twice(number: u64) -> u64 {
        let once = mix(number);
        mix(once ^ once >> 32)
    }

    /// The place of a mix.
    #[must_use]
    #[inline(always)]
    pub const fn place(mix: u64) -> u32 {
        (mix >> (64 - PLACE)) as u32
    }

    /// An entry of a packet at a time, without what does not fit.
    #[must_use]
    #[inline(always)]
    pub const fn entry(mix: u64, time: u64) -> u64 {
        mix << PLACE >> TIME << TIME | (time & !(u64::MAX << TIME))
    }

    /// Whether an entry is of the packet with this mix.
    #[must_use]
    #[inline(always)]
    pub const fn is_of(entry: u64, mix: u64) -> bool {
        entry != 0 && (self::entry(mix, 0) ^ entry) >> TIME == 0
    }

    /// The time since an entry, modulo two to the [`TIME`]th.
    #[must_use]
    #[inline(always)]
    pub const fn elapsed(entry: u64, now: u64) -> u64 {
        now.wrapping_sub(entry) & !(u64::MAX << TIME)
    }

    /// The time since an entry, where it is of the packet with this mix.
    #[must_use]
    #[inline(always)]
    pub const fn since(entry: u64, mix: u64, now: u64) -> Option<u64> {
        if is_of(entry, mix) { Some(elapsed(entry, now)) } else { None }
    }
}
