//! Programs, one for each hook. A hook reads what its handlers share, then calls them.

mod arguments;
mod cgroup;
mod deliver;
mod driver;
mod drop;
mod enqueue;
mod extra;
mod owner;
mod read;
mod receive;
mod retransmit;
mod send;
mod softirq;
mod subject;

use undercurrent_ebpf::abi::{
    latency::{Layer, Network, Path, Transport},
    loss::PacketLoss,
    workload::Slot,
};

use crate::{
    kernel::{
        event::{PacketEvent, Sampled},
        fields::SKB_PROTOCOL,
        filter::{self, Subject, Which},
        group::{self, Number},
        owner::or_node,
        pointer::Pointer,
    },
    signals::{latency, receive_wait},
};

/// `ETH_P_IPV6` in network order, as `sk_buff.protocol` holds it.
const ETH_P_IPV6: u16 = 0x86ddu16.to_be();
/// `ETH_P_IP` in network order.
const ETH_P_IP: u16 = 0x0800u16.to_be();

const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;

/// What is taken once.
struct Once<T>(T);

impl<T> Once<T> {
    #[inline(always)]
    fn take(self) -> T {
        self.0
    }
}

/// A packet got to the end of a path. Whose it is, is asked once, and only where somebody wants to know.
///
/// The compiler makes a function of that question, and a call took 15 ns of an event on a host whose returns are guarded against
/// speculation. Where it matters, hooks have it inlined: it captures what is [`Once`], since what could be asked twice is
/// called by way of a function in between, whatever it says of being inlined.
#[inline(always)]
fn reached(path: Path, packet: &impl Subject, event: Sampled, which: Which, slot: impl FnOnce() -> Slot) {
    if which == Which::Chosen {
        return filtered(path, packet, event, slot);
    }
    match event {
        Ok(Some(event)) => {
            arrived(path, &event);
            measured(path, &event, or_node(slot), None);
        }
        Ok(None) => {}
        Err(loss) => latency::lost(path, loss, 1),
    }
}

/// The same where packets are chosen.
#[inline(always)]
fn filtered(path: Path, packet: &impl Subject, event: Sampled, slot: impl FnOnce() -> Slot) {
    let chosen = filter::chooses(packet);
    match event {
        Ok(Some(event)) => {
            // A reader may be chosen whose packets are not known to be his before he reads them.
            arrived(path, &event);
            // Whoever reads a socket is its reader, whatever is measured of it.
            let reader = if path.layer == Layer::SocketRead { Ok(or_node(slot)) } else { Err(slot) };
            if chosen == Some(false) {
                return;
            }
            let slot = reader.unwrap_or_else(or_node);
            match filter::chooses_all(chosen, slot) {
                Some(true) => measured(path, &event, slot, group::of(packet, slot, event.weight)),
                Some(false) => {}
                None => latency::lost(path, PacketLoss::Unfiltered, event.weight),
            }
        }
        Err(loss) if chosen != Some(false) => latency::lost(path, loss, 1),
        _ => {}
    }
}

/// A packet is at the end of a path, whether it is measured or not.
#[inline(always)]
fn arrived(path: Path, event: &PacketEvent) {
    if path.layer == Layer::SocketEnqueued {
        receive_wait::begun(event);
    }
}

#[inline(always)]
fn measured(path: Path, event: &PacketEvent, slot: Slot, group: Option<Number>) {
    latency::reached(path, event, slot, group);
    if let (Layer::SocketRead, Some(transport)) = (path.layer, path.transport) {
        receive_wait::ended(event, transport, path.network, slot, group);
    }
}

/// A `sk_buff` that was delivered on this host reached a layer where its Ethertype says its IP version.
#[inline(always)]
fn reached_socket(
    skb: impl Pointer,
    packet: &impl Subject,
    layer: Layer,
    transport: Transport,
    which: Which,
    slot: impl FnOnce() -> Slot,
) {
    // A branch for each version, so that each has its histogram at a constant offset.
    if skb.read(&SKB_PROTOCOL) == ETH_P_IPV6 {
        reached(Path::of(layer, transport, Network::Ipv6), packet, PacketEvent::delivered(skb), which, slot);
    } else {
        reached(Path::of(layer, transport, Network::Ipv4), packet, PacketEvent::delivered(skb), which, slot);
    }
}

/// A packet of a transport protocol reached a layer.
#[inline(always)]
fn reached_over(
    layer: Layer,
    transport: Transport,
    network: Network,
    packet: &impl Subject,
    event: Sampled,
    which: Which,
    slot: impl FnOnce() -> Slot,
) {
    // As above.
    match network {
        Network::Ipv4 => reached(Path::of(layer, transport, Network::Ipv4), packet, event, which, slot),
        Network::Ipv6 => reached(Path::of(layer, transport, Network::Ipv6), packet, event, which, slot),
    }
}

/// A packet of a TCP connection reached a layer; whether it may have waited for the network is asked only of what is measured.
///
/// Each case by itself: one event for all of them took twenty instructions to put together and apart again.
#[inline(always)]
fn reached_in_order(
    layer: Layer,
    network: Network,
    packet: &impl Subject,
    event: Sampled,
    which: Which,
    blocked: impl FnOnce() -> bool,
    slot: impl FnOnce() -> Slot,
) {
    match event {
        Ok(Some(event)) => {
            let event = PacketEvent { blocked: blocked(), ..event };
            reached_over(layer, Transport::Tcp, network, packet, Ok(Some(event)), which, slot);
        }
        Ok(None) => {}
        // There is no other loss. Verifiers before 6.12 want to see which.
        Err(_) => reached_over(layer, Transport::Tcp, network, packet, Err(PacketLoss::NoStamp), which, || Slot::NODE),
    }
}
