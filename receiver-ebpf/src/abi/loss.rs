//! What a program saw and could not record, by reason.

/// Why a packet is in no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketLoss {
    /// It carries no timestamp.
    NoStamp,
    /// Its timestamp is the sender's departure time, not a receive time.
    TransmitStamp,
    /// Its timestamp lies in the future: the wall clock was set back after it was taken.
    Negative,
    /// When it began to wait is not known: it was not seen then, or another packet had its place; or what it was that came
    /// is not known, since a reader had it at once.
    Unmatched,
    /// Whether the filter chooses it cannot be told here.
    Unfiltered,
    /// It waited behind a segment that came late: its age says how long the network took.
    HeadOfLine,
}

/// Number of reasons.
pub const PACKET_LOSSES: usize = 6;

impl PacketLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; PACKET_LOSSES] =
        [Self::NoStamp, Self::TransmitStamp, Self::Negative, Self::Unmatched, Self::Unfiltered, Self::HeadOfLine];
}
