//! Cells of `undercurrent.network.receive.duration`, `undercurrent.network.receive.wait.duration`,
//! `undercurrent.network.transmit.duration`, `undercurrent.tcp.rtt`, `undercurrent.tcp.transaction.duration` and
//! `undercurrent.tcp.connection.duration`.

use core::{mem::size_of, ops::Range};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    histogram::HistogramCell,
    latency::{IpVersion, Layer, RECEIVE_POINTS, ReceivePoint, Transport},
    loss::PACKET_LOSSES,
    transactions::Role,
    transmit::{TRANSMIT_SERIES, TransmitSeries},
};

/// The measured quantity of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// The time from a packet's receive timestamp to a receive point.
    Receive(ReceivePoint),
    /// The time from a packet's arrival in its socket's queue to its read.
    Wait(Transport, IpVersion),
    /// The time that a packet took for a layer of the transmit path.
    Transmit(TransmitSeries),
    /// TCP's smoothed round-trip time, at a read.
    Rtt(IpVersion),
    /// The time of a transaction of a TCP connection.
    Transaction(Role),
    /// The time from a TCP connection's handshake to its first end.
    Connection(Role),
}

/// Number of series.
pub const SERIES: usize = Series::CONNECTION.end;
const WAITS: usize = 4;

impl Series {
    /// The indices of [`Self::Receive`].
    pub const RECEIVE: Range<usize> = 0..RECEIVE_POINTS;
    /// The indices of [`Self::Wait`].
    pub const WAIT: Range<usize> = Self::RECEIVE.end..Self::RECEIVE.end + WAITS;
    /// The indices of [`Self::Transmit`].
    pub const TRANSMIT: Range<usize> = Self::WAIT.end..Self::WAIT.end + TRANSMIT_SERIES;
    /// The indices of [`Self::Rtt`].
    pub const RTT: Range<usize> = Self::TRANSMIT.end..Self::TRANSMIT.end + IpVersion::ALL.len();
    /// The indices of [`Self::Transaction`].
    pub const TRANSACTION: Range<usize> = Self::RTT.end..Self::RTT.end + Role::ALL.len();
    /// The indices of [`Self::Connection`].
    pub const CONNECTION: Range<usize> = Self::TRANSACTION.end..Self::TRANSACTION.end + Role::ALL.len();

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
                Self::Transmit(TransmitSeries::ALL[index - Self::TRANSMIT.start])
            } else if index < Self::RTT.end {
                Self::Rtt(IpVersion::ALL[index - Self::RTT.start])
            } else if index < Self::TRANSACTION.end {
                Self::Transaction(Role::ALL[index - Self::TRANSACTION.start])
            } else {
                Self::Connection(Role::ALL[index - Self::CONNECTION.start])
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
            Self::Transmit(series) => Self::TRANSMIT.start + series.index(),
            Self::Rtt(version) => Self::RTT.start + version as usize,
            Self::Transaction(role) => Self::TRANSACTION.start + role as usize,
            Self::Connection(role) => Self::CONNECTION.start + role as usize,
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
