//! The programs, one for each hook. A hook reads the data that its handlers share, then calls the handlers.

mod arguments;
mod call;
mod cgroup;
mod deliver;
mod driver;
mod drop;
mod enqueue;
mod extra;
mod failure;
mod forward;
mod listen;
mod owner;
mod read;
mod receive;
mod retransmit;
mod sample;
mod send;
mod socket;
mod softirq;
mod subject;

use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, ReceivePoint, Transport},
    loss::PacketLoss,
    workload::Slot,
};

use crate::{
    kernel::{
        event::{PacketEvent, Sampled},
        fields::{SKB_PROTOCOL, SkBuff},
        filter::{self, FilterMode, Subject},
        group::{self, Number},
        owner::or_node,
        pointer::{Access, Ptr},
        unread,
    },
    signals::{forwarded, latency, packet_path, receive_segments, receive_wait, slow_packets, waiting_packets},
};

/// `ETH_P_IPV6` in network order, as in `sk_buff.protocol`.
const ETH_P_IPV6: u16 = 0x86ddu16.to_be();
/// `ETH_P_IP` in network order.
const ETH_P_IP: u16 = 0x0800u16.to_be();

const IPPROTO_UDP: u8 = 17;

/// Handles a packet at a receive point. `slot` looks up the packet's owner; it runs at most once, and only if a handler needs
/// it.
///
/// Hot hooks capture [`Once`](crate::kernel::workarounds::Once) values in `slot`, so that the compiler inlines it.
#[inline(always)]
fn reached(point: ReceivePoint, packet: &impl Subject, event: Sampled, mode: FilterMode, slot: impl FnOnce() -> Slot) {
    if mode == FilterMode::On {
        return filtered(point, packet, event, slot);
    }
    match event {
        Ok(Some(event)) => {
            let wait = arrived(point, packet, &event);
            measured(point, packet, &event, wait, or_node(slot), None);
        }
        Ok(None) => {}
        Err(loss) => latency::lost(point, loss, 1),
    }
}

/// Handles a packet at a receive point if filters or groups are configured.
#[inline(always)]
fn filtered(point: ReceivePoint, packet: &impl Subject, event: Sampled, slot: impl FnOnce() -> Slot) {
    // The compiler saves the words of the event during the calls of the filter. They must be initialized in every case, or the verifier
    // rejects the program.
    let (event, state) = match event {
        Ok(Some(event)) => (event, Ok(true)),
        Ok(None) => (PacketEvent::EMPTY, Ok(false)),
        Err(loss) => (PacketEvent::EMPTY, Err(loss)),
    };
    let selected = filter::selects(packet);
    match state {
        Ok(true) => {
            // Recorded for every packet: a filter for processes selects packets only at the read.
            let wait = arrived(point, packet, &event);
            // At a read, the lookup also records the socket's reader, which does not depend on the filter.
            let reader = if point.layer == Layer::SocketRead { Ok(or_node(slot)) } else { Err(slot) };
            if selected == Some(false) {
                return;
            }
            let slot = reader.unwrap_or_else(or_node);
            match filter::selects_all(selected, slot) {
                Some(true) => measured(point, packet, &event, wait, slot, group::of(packet, slot, event.weight)),
                Some(false) => {}
                None => latency::lost(point, PacketLoss::NotFilterable, event.weight),
            }
        }
        Err(loss) if selected != Some(false) => latency::lost(point, loss, 1),
        _ => {}
    }
}

/// Stores the time of a packet before its read. At the read, returns its wait in the socket's queue, as [`waiting_packets::end`] does.
#[inline(always)]
fn arrived(point: ReceivePoint, packet: &impl Subject, event: &PacketEvent) -> u64 {
    match point.layer {
        Layer::Host => {}
        Layer::Ip => packet_path::passed_ip(event),
        Layer::Transport => {
            packet_path::passed_transport(event, packet);
            // The wait of a segment begins in socket storage.
            if point.transport == Some(Transport::Udp) && receive_wait::begins_at_transport() && packet.has_storage() {
                waiting_packets::store(waiting_packets::mix(point, packet, event), event);
            }
        }
        Layer::SocketRead
            if point.transport == Some(Transport::Tcp)
                && receive_wait::begins_at_transport()
                && packet.has_storage() =>
        {
            return packet.last_segment().wait(event.timestamp, event.now);
        }
        Layer::SocketEnqueued if slow_packets::enabled() || receive_wait::needs_record(point.transport, packet) => {
            waiting_packets::store(waiting_packets::mix(point, packet, event), event);
        }
        Layer::SocketRead if slow_packets::enabled() || receive_wait::needs_record(point.transport, packet) => {
            return waiting_packets::end(waiting_packets::mix(point, packet, event), event);
        }
        Layer::SocketEnqueued | Layer::SocketRead => {}
    }
    waiting_packets::UNKNOWN
}

#[inline(always)]
fn measured(
    point: ReceivePoint,
    packet: &impl Subject,
    event: &PacketEvent,
    wait: u64,
    slot: Slot,
    group: Option<Number>,
) {
    // A branch of its own: a second test of `blocked` in the selection of slow packets takes three instructions.
    if event.blocked {
        latency::lost(point, PacketLoss::HeadOfLine, event.weight);
        waited(point, packet, event, wait, slot, group);
        return;
    }
    latency::reached(point, event, slot, group);
    if point.layer == Layer::Transport {
        forwarded::delivered(point.version, packet, event, slot, group);
    }
    receive_segments::reached(point, packet, event.weight, slot);
    waited(point, packet, event, wait, slot, group);
    if point.layer == Layer::SocketRead {
        slow_packets::read(point, packet, event, wait, slot, group);
    }
}

/// Records the end of a packet's wait at a read.
#[inline(always)]
fn waited(
    point: ReceivePoint,
    packet: &impl Subject,
    event: &PacketEvent,
    wait: u64,
    slot: Slot,
    group: Option<Number>,
) {
    if let (Layer::SocketRead, Some(transport)) = (point.layer, point.transport) {
        receive_wait::ended(event, wait, transport, point.version, packet, slot, group);
    }
}

/// Records the wait of data that the current task reads from a connection, if the filter selects it. `wait` is the result of
/// [`receive_wait::data_read`].
#[inline(always)]
fn data_waited(wait: u64, version: IpVersion, packet: &impl Subject, mode: FilterMode, slot: Slot) {
    if wait == unread::NONE {
        return;
    }
    let group = match mode {
        FilterMode::Off => None,
        FilterMode::On if filter::selects_all(filter::selects(packet), slot) != Some(true) => return,
        // Without weight: the read itself counts if it has no group.
        FilterMode::On => group::of(packet, slot, 0),
    };
    receive_wait::record_data(wait, version, slot, group);
}

/// Handles a delivered packet at a socket layer. The IP version is that of its Ethertype.
#[inline(always)]
fn reached_socket<A: Access>(
    skb: Ptr<SkBuff, A>,
    packet: &impl Subject,
    layer: Layer,
    transport: Transport,
    mode: FilterMode,
    slot: impl FnOnce() -> Slot,
) {
    // One branch per version, so that each has its histogram at a constant offset.
    if skb.read(&SKB_PROTOCOL) == ETH_P_IPV6 {
        let point = ReceivePoint::of(layer, transport, IpVersion::Ipv6);
        reached(point, packet, PacketEvent::delivered(skb), mode, slot);
    } else {
        let point = ReceivePoint::of(layer, transport, IpVersion::Ipv4);
        reached(point, packet, PacketEvent::delivered(skb), mode, slot);
    }
}

/// Handles a packet of a transport protocol at a layer.
#[inline(always)]
fn reached_over(
    layer: Layer,
    transport: Transport,
    version: IpVersion,
    packet: &impl Subject,
    event: Sampled,
    mode: FilterMode,
    slot: impl FnOnce() -> Slot,
) {
    // One branch per version, so that each has its histogram at a constant offset.
    match version {
        IpVersion::Ipv4 => {
            reached(ReceivePoint::of(layer, transport, IpVersion::Ipv4), packet, event, mode, slot);
        }
        IpVersion::Ipv6 => {
            reached(ReceivePoint::of(layer, transport, IpVersion::Ipv6), packet, event, mode, slot);
        }
    }
}

/// Handles a packet of a TCP connection at a layer. `blocked` runs only for measured packets.
///
/// Each case has its own call: building one event for all cases took twenty instructions more.
#[inline(always)]
fn reached_in_order(
    layer: Layer,
    version: IpVersion,
    packet: &impl Subject,
    event: Sampled,
    mode: FilterMode,
    blocked: impl FnOnce() -> bool,
    slot: impl FnOnce() -> Slot,
) {
    match event {
        Ok(Some(event)) => {
            let event = PacketEvent { blocked: blocked(), ..event };
            reached_over(layer, Transport::Tcp, version, packet, Ok(Some(event)), mode, slot);
        }
        Ok(None) => {}
        // The only loss here. It is a constant because verifiers before 6.12 lose the bounds of the variable.
        Err(_) => {
            let lost = Err(PacketLoss::NoTimestamp);
            reached_over(layer, Transport::Tcp, version, packet, lost, mode, || Slot::NODE);
        }
    }
}
