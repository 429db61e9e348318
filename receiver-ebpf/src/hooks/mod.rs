//! Programs, one for each hook. A hook reads what its handlers share, then calls them.

mod cgroup;
mod deliver;
mod drop;
mod enqueue;
mod extra;
mod owner;
mod read;
mod receive;
mod retransmit;
mod softirq;

use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    workload::Slot,
};

use crate::{
    kernel::{
        event::{PacketEvent, Sampled},
        fields::SKB_PROTOCOL,
        owner::or_node,
    },
    signals::{latency, receive_wait},
};

/// `ETH_P_IPV6` in network order, as `sk_buff.protocol` holds it.
const ETH_P_IPV6: u16 = 0x86ddu16.to_be();
/// `ETH_P_IP` in network order.
const ETH_P_IP: u16 = 0x0800u16.to_be();

const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;

/// A packet got to the end of a path. Whose it is, is asked once, and only where somebody wants to know.
#[inline(always)]
fn reached(path: Path, event: Sampled, slot: impl FnOnce() -> Slot) {
    match event {
        Ok(Some(event)) => {
            let slot = or_node(slot);
            latency::reached(path, &event, slot);
            match (path.layer, path.transport) {
                (Layer::SocketEnqueued, _) => receive_wait::begun(&event),
                (Layer::SocketRead, Some(transport)) => receive_wait::ended(&event, transport, path.network, slot),
                _ => {}
            }
        }
        Ok(None) => {}
        Err(loss) => latency::lost(path, loss),
    }
}

/// A packet reached a layer where its Ethertype says its IP version.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that was delivered on this host.
#[inline(always)]
unsafe fn reached_socket(skb: *const u8, layer: Layer, transport: Transport, early: u64, slot: impl FnOnce() -> Slot) {
    // A branch for each version, so that each has its histogram at a constant offset.
    // SAFETY: by the caller; every kernel has the Ethertype.
    unsafe {
        if SKB_PROTOCOL.load(skb) == ETH_P_IPV6 {
            reached(Path::of(layer, transport, Network::Ipv6), PacketEvent::delivered(skb, early), slot);
        } else {
            reached(Path::of(layer, transport, Network::Ipv4), PacketEvent::delivered(skb, early), slot);
        }
    }
}
