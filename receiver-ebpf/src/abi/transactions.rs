//! Transactions of TCP connections: their series, and their counts by slot and shard.

/// The end of a connection that is on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It opened the connection.
    Client,
    /// It accepted the connection.
    Server,
}

impl Role {
    /// Both roles, each at its own index.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];
}

/// What is counted by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Bytes that the application sent.
    Sent,
    /// Bytes that TCP received in order.
    Received,
    /// Connections that were established.
    Established(Role),
    /// Attempts of clients that the other end refused.
    Refused,
    /// Connections that the other end reset.
    Reset(Role),
    /// Connections and attempts that ended because the other end did not answer.
    TimedOut(Role),
}

impl Count {
    /// Returns the index of the count in its shard.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        match self {
            Self::Sent => 0,
            Self::Received => 1,
            Self::Established(role) => 2 + role as usize,
            Self::Refused => 4,
            Self::Reset(role) => 5 + role as usize,
            Self::TimedOut(role) => 7 + role as usize,
        }
    }
}

/// Words of a shard: whole cache lines, which CPUs with their own shard do not share.
pub const WORDS: usize = 16;
