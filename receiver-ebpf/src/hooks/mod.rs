//! Programs, one for each hook. A hook reads what its handlers share, then calls them.

mod deliver;
mod enqueue;
mod read;
mod receive;
mod softirq;

use undercurrent_ebpf::abi::latency::Network;

/// `ETH_P_IPV6` in network order, as `sk_buff.protocol` holds it.
const ETH_P_IPV6: u16 = 0x86ddu16.to_be();
/// `ETH_P_IP` in network order.
const ETH_P_IP: u16 = 0x0800u16.to_be();

/// The IP version behind an Ethertype in network order.
#[inline(always)]
fn network(protocol: u16) -> Network {
    if protocol == ETH_P_IPV6 { Network::Ipv6 } else { Network::Ipv4 }
}
