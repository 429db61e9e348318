//! Programs, one for each hook. A hook reads what its handlers share, then calls them.

mod cgroup;
mod deliver;
mod enqueue;
mod owner;
mod read;
mod receive;
mod softirq;

use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    workload::Slot,
};

use crate::{
    kernel::{event::PacketEvent, fields::SKB_PROTOCOL},
    signals::latency,
};

/// `ETH_P_IPV6` in network order, as `sk_buff.protocol` holds it.
const ETH_P_IPV6: u16 = 0x86ddu16.to_be();
/// `ETH_P_IP` in network order.
const ETH_P_IP: u16 = 0x0800u16.to_be();

const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;

/// A delivered packet reached the end of a path.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn reached(skb: *const u8, path: Path, now: u64, slot: impl FnOnce() -> Slot) {
    // SAFETY: by the caller.
    latency::reached(path, || unsafe { PacketEvent::delivered(skb, now) }, slot);
}

/// A packet reached a layer where its Ethertype says its IP version.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn reached_socket(skb: *const u8, layer: Layer, transport: Transport, now: u64, slot: impl FnOnce() -> Slot) {
    // A branch for each version, so that each has its histogram at a constant offset.
    // SAFETY: by the caller; every kernel has the Ethertype.
    unsafe {
        if SKB_PROTOCOL.load(skb) == ETH_P_IPV6 {
            reached(skb, Path::of(layer, transport, Network::Ipv6), now, slot);
        } else {
            reached(skb, Path::of(layer, transport, Network::Ipv4), now, slot);
        }
    }
}
