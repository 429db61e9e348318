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
    let key = AttributeKey::open(CPU, "0, 1, ...");
    if opt_in { key.opt_in() } else { key }
}

/// `undercurrent.network.layer`.
pub const LAYER: AttributeKey = AttributeKey::derived("undercurrent.network.layer", || Layer::ALL.map(layer).to_vec())
    .or("a function of `extra_layers`");
/// `undercurrent.network.stage`: a part of the transmit path.
pub const STAGE: AttributeKey =
    AttributeKey::derived("undercurrent.network.stage", || TransmitLayer::ALL.map(stage).to_vec());
/// `network.transport`.
pub const TRANSPORT: AttributeKey =
    AttributeKey::derived("network.transport", || [Transport::Tcp, Transport::Udp].map(transport).to_vec());
/// `network.type`.
pub const NETWORK: AttributeKey = AttributeKey::derived("network.type", || IpVersion::ALL.map(network).to_vec());

/// `network.interface.name`, where packets are told apart by it.
pub const INTERFACE: AttributeKey =
    AttributeKey::open("network.interface.name", "the interface that packets came in by, or leave by").opt_in();
/// `undercurrent.network.namespace`, where packets are told apart by it.
pub const NAMESPACE: AttributeKey =
    AttributeKey::open("undercurrent.network.namespace", "the inode of the network namespace that packets are in")
        .opt_in();

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

/// The value of `undercurrent.network.stage`.
pub const fn stage(layer: TransmitLayer) -> &'static str {
    match layer {
        TransmitLayer::Transport => "stack",
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
