//! Cells of `undercurrent.network.receive.duration`.

/// Where in the receive path a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Layer {
    /// Entry of the network layer, before netfilter.
    Ip = 0,
    /// Entry of the transport protocol.
    Transport = 1,
    /// In the socket's receive queue.
    SocketEnqueued = 2,
    /// Copied to the application.
    SocketRead = 3,
}

/// The transport protocol of a packet. The network layer has not looked at it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Transport {
    /// Not known at this layer.
    Any = 0,
    /// TCP.
    Tcp = 1,
    /// UDP.
    Udp = 2,
}

/// The IP version of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Network {
    /// IPv4.
    Ipv4 = 0,
    /// IPv6.
    Ipv6 = 1,
}

impl Layer {
    /// Every layer, in the order of the receive path.
    pub const ALL: [Self; 4] = [Self::Ip, Self::Transport, Self::SocketEnqueued, Self::SocketRead];
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 3] = [Self::Any, Self::Tcp, Self::Udp];
}

impl Network {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];
}

/// Cells of the latency map on each CPU.
pub const CELLS: u32 = 4 * 3 * 2;

/// The index of a layer's cell in the latency map.
#[must_use]
#[inline(always)]
pub const fn cell(layer: Layer, transport: Transport, network: Network) -> u32 {
    (layer as u32 * 3 + transport as u32) * 2 + network as u32
}
