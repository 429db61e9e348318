//! Attributes that several signals share, and the words for the kernel side's enumerations.

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, Transport},
    softirq::Softirq,
    transmit::TransmitLayer,
};

use crate::{
    telemetry::{AttributeKey, Value},
    text::shortened,
};

/// The longest name of an interface, 15 bytes, with every byte escaped.
const INTERFACE_NAME: usize = 90;

/// A CPU, as the semantic conventions have it.
pub const CPU: &str = "cpu.logical_number";
/// Why something is in no measurement.
pub const REASON: &str = "undercurrent.reason";

/// A CPU's attribute where every CPU has its own point.
pub const fn cpu(opt_in: bool) -> AttributeKey {
    AttributeKey { key: CPU, values: &["0, 1, ..."], opt_in }
}

/// `undercurrent.network.layer`.
pub const LAYER: AttributeKey = AttributeKey {
    key: "undercurrent.network.layer",
    values: &["ip", "transport", "socket_enqueued", "socket_read", "a function of `extra_layers`"],
    opt_in: false,
};
/// `network.transport`.
pub const TRANSPORT: AttributeKey = AttributeKey { key: "network.transport", values: &["tcp", "udp"], opt_in: false };
/// `network.type`.
pub const NETWORK: AttributeKey = AttributeKey { key: "network.type", values: &["ipv4", "ipv6"], opt_in: false };

/// `network.interface.name`, where packets are told apart by it.
pub const INTERFACE: AttributeKey = AttributeKey {
    key: "network.interface.name",
    values: &["the interface that packets came in by, or leave by"],
    opt_in: true,
};
/// `undercurrent.network.namespace`, where packets are told apart by it.
pub const NAMESPACE: AttributeKey = AttributeKey {
    key: "undercurrent.network.namespace",
    values: &["the inode of the network namespace that packets are in"],
    opt_in: true,
};

/// The value of `network.interface.name`. A local user may choose the name, in a network namespace of a user namespace.
pub fn interface(name: &str) -> Value {
    shortened(name, INTERFACE_NAME).into_owned().into()
}

/// The value of `undercurrent.network.layer`.
pub const fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Ip => "ip",
        Layer::Transport => "transport",
        Layer::SocketEnqueued => "socket_enqueued",
        Layer::SocketRead => "socket_read",
    }
}

/// The value of `undercurrent.network.layer` on the way out.
pub const fn transmit_layer(layer: TransmitLayer) -> &'static str {
    match layer {
        TransmitLayer::Transport => "transport",
        TransmitLayer::Qdisc => "qdisc",
        TransmitLayer::Device => "device",
    }
}

/// The value of `network.transport`.
pub const fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    }
}

/// The value of `network.type`.
pub const fn network(version: IpVersion) -> &'static str {
    match version {
        IpVersion::Ipv4 => "ipv4",
        IpVersion::Ipv6 => "ipv6",
    }
}

/// The value of `undercurrent.softirq`.
pub const fn softirq(softirq: Softirq) -> &'static str {
    match softirq {
        Softirq::Transmit => "net_tx",
        Softirq::Receive => "net_rx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_are_printable() {
        assert_eq!(interface("eth0"), "eth0".into());
        assert_eq!(interface("\u{202e}0hte\x1b[2J"), "\\u{202e}0hte\\u{1b}[2J".into());
        assert_eq!(interface(&"\x7f".repeat(15)), "\\u{7f}".repeat(15).into());
    }
}
