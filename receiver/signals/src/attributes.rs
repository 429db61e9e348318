//! Attributes that several signals share, and the attribute values of the eBPF programs' enumerations.

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, Transport},
    softirq::Softirq,
    transactions::Role,
    transmit::TransmitLayer,
};

use crate::{options::Named, telemetry::AttributeKey};

pub use undercurrent_packets::attributes::{INTERFACE, NAMESPACE, interface};

/// The CPU number, as the semantic conventions define it.
pub const CPU: &str = "cpu.logical_number";

/// Returns the attribute of the CPU number, for metrics with a point per CPU.
pub const fn cpu(opt_in: bool) -> AttributeKey {
    let key = AttributeKey::open(CPU, "0, 1, ...");
    if opt_in { key.opt_in() } else { key }
}

/// `undercurrent.network.layer`.
pub const LAYER: AttributeKey =
    AttributeKey::derived("undercurrent.network.layer", || Layer::NAMES.to_vec()).or("a function of `extra_layers`");
/// `undercurrent.network.stage`: a part of the transmit path.
pub const STAGE: AttributeKey = AttributeKey::derived("undercurrent.network.stage", || TransmitLayer::NAMES.to_vec());
/// `network.transport`.
pub const TRANSPORT: AttributeKey =
    AttributeKey::derived("network.transport", || [Transport::Tcp, Transport::Udp].map(transport).to_vec());
/// `network.type`.
pub const NETWORK: AttributeKey = AttributeKey::derived("network.type", || IpVersion::ALL.map(network).to_vec());

/// `undercurrent.role`: the end of a connection.
pub const ROLE: AttributeKey = AttributeKey::derived("undercurrent.role", || Role::ALL.map(role).to_vec());

/// Returns the value of `undercurrent.network.layer`.
pub const fn layer(layer: Layer) -> &'static str {
    <Layer as Named>::NAMES[layer as usize]
}

/// Returns the value of `undercurrent.network.stage`.
pub const fn stage(layer: TransmitLayer) -> &'static str {
    <TransmitLayer as Named>::NAMES[layer as usize]
}

/// Returns the value of `network.transport`.
pub const fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    }
}

/// Returns the value of `network.type`.
pub const fn network(version: IpVersion) -> &'static str {
    match version {
        IpVersion::Ipv4 => "ipv4",
        IpVersion::Ipv6 => "ipv6",
    }
}

/// Returns the value of `undercurrent.role`.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

/// Returns the value of `undercurrent.softirq`.
pub const fn softirq(softirq: Softirq) -> &'static str {
    match softirq {
        Softirq::Transmit => "net_tx",
        Softirq::Receive => "net_rx",
    }
}
