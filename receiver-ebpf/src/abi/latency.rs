//! Layers of the receive path, and the protocols of a packet.

/// A layer of the receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The last receive timestamp of a packet that this host forwarded, for example to a container. It is at the receiver's own interface.
    Host,
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
    pub const ALL: [Self; 5] = [Self::Host, Self::Ip, Self::Transport, Self::SocketEnqueued, Self::SocketRead];
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
    /// The transport protocol; `None` for all protocols.
    pub transport: Option<Transport>,
    /// The IP version.
    pub version: IpVersion,
}

/// Number of receive points.
pub const RECEIVE_POINTS: usize = 16;

impl ReceivePoint {
    /// Every receive point, at its own index.
    pub const ALL: [Self; RECEIVE_POINTS] = {
        let mut all = [Self::host(IpVersion::Ipv4); RECEIVE_POINTS];
        let layers = [Layer::Transport, Layer::SocketEnqueued, Layer::SocketRead];
        let mut index = 0;
        while index < RECEIVE_POINTS {
            let version = if index % 2 == 0 { IpVersion::Ipv4 } else { IpVersion::Ipv6 };
            all[index] = if index < 2 {
                Self::host(version)
            } else if index < 4 {
                Self::ip(version)
            } else {
                let transport = if index & 2 == 0 { Transport::Tcp } else { Transport::Udp };
                Self::of(layers[index / 4 - 1], transport, version)
            };
            assert!(all[index].index() == index);
            index += 1;
        }
        all
    };

    /// Returns the receive point of forwarded packets.
    #[must_use]
    pub const fn host(version: IpVersion) -> Self {
        Self { layer: Layer::Host, transport: None, version }
    }

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
        let layer = self.layer as usize;
        match self.transport {
            None => layer * 2 + self.version as usize,
            Some(transport) => (layer - 1) * 4 + transport as usize * 2 + self.version as usize,
        }
    }
}
