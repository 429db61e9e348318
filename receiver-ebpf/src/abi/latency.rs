//! Layers of the receive path, and the protocols of a packet.

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
