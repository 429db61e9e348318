//! Reasons why a program did not record an event.

/// Reasons why a packet is in no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketLoss {
    /// The packet has no timestamp.
    NoTimestamp,
    /// The timestamp is the sender's departure time instead of a receive time.
    TransmitTimestamp,
    /// The timestamp is in the future: the wall clock was set back.
    Negative,
    /// The start of the wait is unknown: no hook saw it, another packet replaced its entry, or a reader took the packet before
    /// the hook.
    MissingStart,
    /// The filter needs an attribute that the hook cannot read.
    NotFilterable,
    /// The packet waited for a late segment, so its age is the network's time.
    HeadOfLine,
}

/// Number of reasons.
pub const PACKET_LOSSES: usize = 6;

impl PacketLoss {
    /// Every reason, at its own index.
    pub const ALL: [Self; PACKET_LOSSES] = [
        Self::NoTimestamp,
        Self::TransmitTimestamp,
        Self::Negative,
        Self::MissingStart,
        Self::NotFilterable,
        Self::HeadOfLine,
    ];
}
