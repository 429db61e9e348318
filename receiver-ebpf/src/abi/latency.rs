//! Cells of `undercurrent.network.receive.duration`, `undercurrent.network.receive.wait.duration`,
//! `undercurrent.network.transmit.duration` and `undercurrent.tcp.rtt`.

use core::{mem::size_of, ops::Range};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    histogram::HistogramCell,
    loss::PACKET_LOSSES,
    transmit::{DEPARTURES, Departure},
};

/// A layer of the receive path.
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
pub enum IpVersion {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl IpVersion {
    /// Both versions, each at its own index.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];
}

/// A layer that a packet of a transport protocol and IP version reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceivePoint {
    /// The layer.
    pub layer: Layer,
    /// The transport protocol; `None` at the network layer, before the transport header is parsed.
    pub transport: Option<Transport>,
    /// The IP version.
    pub version: IpVersion,
}

/// Number of receive points.
pub const RECEIVE_POINTS: usize = 14;

impl ReceivePoint {
    /// Every receive point, at its own index.
    pub const ALL: [Self; RECEIVE_POINTS] = {
        let mut all = [Self { layer: Layer::Ip, transport: None, version: IpVersion::Ipv4 }; RECEIVE_POINTS];
        let layers = [Layer::Transport, Layer::SocketEnqueued, Layer::SocketRead];
        let mut index = 0;
        while index < RECEIVE_POINTS {
            let version = if index % 2 == 0 { IpVersion::Ipv4 } else { IpVersion::Ipv6 };
            all[index].version = version;
            if index >= 2 {
                let transport = if (index / 2) % 2 == 1 { Transport::Tcp } else { Transport::Udp };
                all[index] = Self { layer: layers[(index - 2) / 4], transport: Some(transport), version };
            }
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// Returns the receive point of the network layer.
    #[must_use]
    pub const fn ip(version: IpVersion) -> Self {
        Self { layer: Layer::Ip, transport: None, version }
    }

    /// Returns the receive point of a later layer.
    #[must_use]
    pub const fn of(layer: Layer, transport: Transport, version: IpVersion) -> Self {
        Self { layer, transport: Some(transport), version }
    }

    /// Returns the receive point's index in [`Self::ALL`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        let layer = self.layer as usize * 4;
        match self.transport {
            None => self.version as usize,
            Some(transport) => layer - 2 + transport as usize * 2 + self.version as usize,
        }
    }
}

/// The measured quantity of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// The time from a packet's receive timestamp to a receive point.
    Receive(ReceivePoint),
    /// The time from a packet's arrival in its socket's queue to its read.
    Wait(Transport, IpVersion),
    /// The time that a packet took for a layer of the transmit path.
    Transmit(Departure),
    /// TCP's smoothed round-trip time, at a read.
    Rtt(IpVersion),
}

/// Number of series.
pub const SERIES: usize = Series::RTT.end;
const WAITS: usize = 4;

impl Series {
    /// The indices of [`Self::Receive`].
    pub const RECEIVE: Range<usize> = 0..RECEIVE_POINTS;
    /// The indices of [`Self::Wait`].
    pub const WAIT: Range<usize> = Self::RECEIVE.end..Self::RECEIVE.end + WAITS;
    /// The indices of [`Self::Transmit`].
    pub const TRANSMIT: Range<usize> = Self::WAIT.end..Self::WAIT.end + DEPARTURES;
    /// The indices of [`Self::Rtt`].
    pub const RTT: Range<usize> = Self::TRANSMIT.end..Self::TRANSMIT.end + IpVersion::ALL.len();

    /// Every series, at its own index.
    pub const ALL: [Self; SERIES] = {
        let mut all = [Self::Receive(ReceivePoint::ALL[0]); SERIES];
        let mut index = 0;
        while index < SERIES {
            all[index] = if index < Self::RECEIVE.end {
                Self::Receive(ReceivePoint::ALL[index])
            } else if index < Self::WAIT.end {
                let ReceivePoint { transport, version, .. } = ReceivePoint::ALL[index - WAITS];
                Self::Wait(transport.unwrap(), version)
            } else if index < Self::TRANSMIT.end {
                Self::Transmit(Departure::ALL[index - Self::TRANSMIT.start])
            } else {
                Self::Rtt(IpVersion::ALL[index - Self::RTT.start])
            };
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// Returns the index of the series' histogram in [`DurationCells`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        match self {
            Self::Receive(point) => point.index(),
            Self::Wait(transport, version) => WAITS + ReceivePoint::of(Layer::SocketRead, transport, version).index(),
            Self::Transmit(departure) => Self::TRANSMIT.start + departure.index(),
            Self::Rtt(version) => Self::RTT.start + version as usize,
        }
    }
}

/// Cells of one CPU. Each series has one program as its writer.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DurationCells {
    /// Durations, by series.
    pub histograms: [HistogramCell; SERIES],
    /// Packets in no histogram, by series and [`super::loss::PacketLoss`].
    pub lost: [[u64; PACKET_LOSSES]; SERIES],
}

const _: () = assert!(size_of::<DurationCells>() == SERIES * (size_of::<HistogramCell>() + 8 * PACKET_LOSSES));

/// Tables of waiting packets, indexed by bits of a hash of the packet's timestamp or address (its mix).
///
/// An entry has further bits of the mix above [`waiting::TIME`] bits of the monotonic clock, in nanoseconds. A later packet
/// replaces an earlier one at an equal index, and the wait of the earlier one is lost. A table may have
/// [several ways](super::transmit::WAYS) for an index.
pub mod waiting {
    /// Number of entries.
    pub const ENTRIES: usize = 1 << INDEX;
    /// Bits of an entry for the time: eighteen minutes.
    pub const TIME: u32 = 40;
    /// Bits of a mix for the index.
    const INDEX: u32 = 14;

    /// Hashes a timestamp by multiplication with the golden ratio (Knuth, The Art of Computer Programming, 6.4).
    #[must_use]
    #[inline(always)]
    pub const fn mix(timestamp: u64) -> u64 {
        timestamp.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Hashes numbers with patterns that one multiplication keeps: addresses of packets, and timestamps at equal distances.
    #[must_use]
    #[inline(always)]
    pub const fn mix_twice(number: u64) -> u64 {
        let once = mix(number);
        mix(once ^ once >> 32)
    }

    /// Returns the index of a mix.
    #[must_use]
    #[inline(always)]
    pub const fn index(mix: u64) -> u32 {
        (mix >> (64 - INDEX)) as u32
    }

    /// Returns the entry of a packet at a time, truncated to the entry's bits.
    #[must_use]
    #[inline(always)]
    pub const fn entry(mix: u64, time: u64) -> u64 {
        mix << INDEX >> TIME << TIME | (time & !(u64::MAX << TIME))
    }

    /// Returns true if an entry belongs to the packet with this mix.
    #[must_use]
    #[inline(always)]
    pub const fn is_of(entry: u64, mix: u64) -> bool {
        entry != 0 && (self::entry(mix, 0) ^ entry) >> TIME == 0
    }

    /// Returns the nanoseconds since an entry, modulo 2^[`TIME`].
    #[must_use]
    #[inline(always)]
    pub const fn elapsed(entry: u64, now: u64) -> u64 {
        now.wrapping_sub(entry) & !(u64::MAX << TIME)
    }

    /// Returns the nanoseconds since an entry; `None` if it belongs to another packet.
    #[must_use]
    #[inline(always)]
    pub const fn since(entry: u64, mix: u64, now: u64) -> Option<u64> {
        if is_of(entry, mix) { Some(elapsed(entry, now)) } else { None }
    }
}
