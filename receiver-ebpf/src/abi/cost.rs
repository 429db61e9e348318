//! CPU time of network events by workload: words, by slot, then by shard, then by [`NetworkEvent`].

/// A network event whose CPU time is charged to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkEvent {
    /// `NET_RX_SOFTIRQ`.
    ReceiveSoftirq,
    /// A task receives from a socket.
    SocketReceive,
    /// A task sends to a socket.
    SocketSend,
}

impl NetworkEvent {
    /// Every event, each at its own index.
    pub const ALL: [Self; 3] = [Self::ReceiveSoftirq, Self::SocketReceive, Self::SocketSend];
}

/// Words of a shard: a power of two, so that no shard spans two cache lines.
pub const WORDS: usize = 4;

const _: () = assert!(NetworkEvent::ALL.len() <= WORDS && WORDS.is_power_of_two());
