//! What a program saw and could not record, by reason.

/// Why a packet is in no histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Loss {
    /// The packet carries no timestamp.
    NoStamp = 0,
    /// The timestamp is the sender's departure time, not a receive time.
    TransmitStamp = 1,
    /// The timestamp lies in the future: the wall clock was set back after it was taken.
    Negative = 2,
    /// A softirq ran of which no raise was seen since its last run.
    UnseenRaise = 3,
}

impl Loss {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::NoStamp, Self::TransmitStamp, Self::Negative, Self::UnseenRaise];
}

/// Reasons that belong to a cell of the latency map; those counters are indexed `cell * PER_CELL + reason`.
pub const PER_CELL: u32 = 4;
