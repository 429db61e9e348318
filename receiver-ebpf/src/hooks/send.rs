//! The transmit path: UDP sends a packet, its device's qdisc receives it, the driver receives it, and the driver completes it.
//!
//! A packet passes the last three once for each device that sends it.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry},
    programs::{BtfTracePointContext, FEntryContext},
};
use undercurrent_ebpf::abi::{
    latency::Transport,
    loss::PacketLoss,
    slow::datagram,
    transmit::TransmitLayer,
    waiting::{self, mix_twice},
    workload::{Slot, ownership},
};

use super::{
    socket::{self, is_fullsock, is_inet, slot_of_owner, transport_in_header},
    subject::outgoing,
};
use crate::{
    kernel::{
        clock,
        context::Arguments as _,
        fields::{
            DEVICE_PARENT, DEVICE_QDISC, NetDevice, QDISC_ENQUEUE, QDISC_FLAGS, SKB_DEVICE, SKB_LENGTH, SKB_PROTOCOL,
            SKB_SK, SKB_TRUESIZE, SKB_TSTAMP, SOCK_PORT, SOCK_PROTOCOL, SkBuff, Sock,
        },
        filter::{self, FilterMode, specialize},
        group, owner,
        pointer::Ptr,
        sample, served,
    },
    signals::{
        network_cpu, packet_path,
        transmit::{self, Recipient, Start, Verdict, measures},
    },
};

/// `TCQ_F_MQROOT`: one qdisc per queue of the device, and an empty root.
const MULTIQUEUE: u32 = 8;
/// `truesize` of an acknowledgement without data (`skb_set_tcp_pure_ack`).
const PURE_ACKNOWLEDGEMENT: u32 = 2;

/// Handles a datagram, with its IP header, that leaves UDP.
#[inline(always)]
fn sent(skb: Ptr<SkBuff>) {
    let sock = skb.follow(&SKB_SK);
    if !measures(TransmitLayer::Transport) || sock.is_null() {
        return;
    }
    if let Some(Transport::Udp) = socket::transport(sock.read(&SOCK_PROTOCOL)) {
        let time = if sample::chosen() { Some(clock::monotonic()) } else { None };
        if transmit::store_start(TransmitLayer::Transport, in_stack(skb, sock), time) {
            transmit::unmatched(TransmitLayer::Transport, Transport::Udp);
        }
    }
}

/// `int ip_send_skb(struct net *net, struct sk_buff *skb)`, 5.10 to 7.3: UDP or a raw socket sends a packet over IPv4.
#[fentry]
fn ip_send_skb(ctx: FEntryContext) -> i32 {
    sent(ctx.pointer(1));
    0
}

/// `int ip6_send_skb(struct sk_buff *skb)`, 5.10 to 7.3: UDP or a raw socket sends a packet over IPv6.
#[fentry]
fn ip6_send_skb(ctx: FEntryContext) -> i32 {
    sent(ctx.pointer(0));
    0
}

/// Tracepoint `net_dev_queue(struct sk_buff *skb)`, 5.10 to 7.3: a packet reaches its device's qdisc, or a device without one.
#[btf_tracepoint(function = "net_dev_queue")]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn net_dev_queue(ctx: BtfTracePointContext) -> i32 {
    specialize!(|mode| queued(ctx.pointer(0), mode))
}

/// Handles a packet that has its device.
#[inline(always)]
fn queued(skb: Ptr<SkBuff>, mode: FilterMode) {
    let sock = skb.follow(&SKB_SK);
    if sock.is_null() {
        network_cpu::finished(|| Slot::NODE);
    }
    let sender = if measures(TransmitLayer::Transport) { sender(skb, sock) } else { None };
    if let Some(Transport::Tcp) = sender {
        return segment_queued(skb, mode);
    }
    let waits = waits(skb);
    let sent = match sender {
        Some(_) if served::sent() => transmit::take_start(TransmitLayer::Transport, in_stack(skb, sock)),
        // The start was not recorded, and no qdisc is measured.
        _ if !waits => return,
        _ => Start::Unknown,
    };
    let selected = selected(skb, mode);
    if selected == Some(false) {
        return;
    }
    let sampled = match sent {
        Start::At(_) => true,
        Start::NotSampled => false,
        Start::Unknown => sample::chosen(),
    };
    let now = if sampled { clock::monotonic() } else { 0 };
    let mut released = now;
    if let Start::At(entry) = sent {
        // Computed here: with a second test of `sent`, the compiler computes it without a start too, and 5.10 rejects the program.
        released = now.wrapping_sub(waiting::elapsed(entry, now));
        let recipient = recipient(skb, mode, selected);
        transmit::ended(TransmitLayer::Transport, Transport::Udp, entry, now, recipient);
    }
    if sampled && let Some(Transport::Udp) = sender {
        packet_path::datagram_sent(|| datagram::key(skb.identity(), sock.read(&SOCK_PORT)), released);
    }
    if waits {
        enters_qdisc(skb, skb.read(&SKB_TSTAMP), now, sampled);
    }
}

/// Handles a segment of TCP that has its device. Its timestamp is its departure time.
#[inline(always)]
fn segment_queued(skb: Ptr<SkBuff>, mode: FilterMode) {
    let selected = selected(skb, mode);
    if selected == Some(false) {
        return;
    }
    let sampled = sample::chosen();
    let departure = skb.read(&SKB_TSTAMP);
    let now = if sampled { clock::monotonic() } else { 0 };
    if departure == 0 {
        transmit::without_timestamp();
    } else if sampled {
        transmit::at_qdisc(departure, now, recipient(skb, mode, selected));
    }
    if waits(skb) {
        enters_qdisc(skb, departure, now, sampled);
    }
}

/// Returns true if qdiscs are measured and a packet's device has one.
#[inline(always)]
fn waits(skb: Ptr<SkBuff>) -> bool {
    measures(TransmitLayer::Qdisc) && has_qdisc(skb.follow(&SKB_DEVICE))
}

/// Records that a packet enters its device's qdisc.
#[inline(always)]
fn enters_qdisc(skb: Ptr<SkBuff>, departure: u64, now: u64, sampled: bool) {
    // The wait of a packet with a later departure time begins at that time.
    let start = if transmit::is_ahead(departure, now) { departure } else { now };
    transmit::store_start(TransmitLayer::Qdisc, in_qdisc(skb), sampled.then_some(start));
}

/// Tracepoint `net_dev_start_xmit(const struct sk_buff *skb, const struct net_device *dev)`, 5.10 to 7.3: the driver receives
/// a packet.
#[btf_tracepoint(function = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: BtfTracePointContext) -> i32 {
    specialize!(|mode| started(ctx.pointer(0), ctx.pointer(1), mode))
}

/// Handles a packet that has its device.
#[inline(always)]
fn started(skb: Ptr<SkBuff>, device: Ptr<NetDevice>, mode: FilterMode) {
    let waited = measures(TransmitLayer::Qdisc) && has_qdisc(device);
    let completes = measures(TransmitLayer::Device) && is_hardware(device);
    if !(waited || completes) {
        return;
    }
    let selected = selected(skb, mode);
    if selected == Some(false) {
        return;
    }
    let Some(transport) = transport(skb) else { return };
    let start = if waited { transmit::take_start(TransmitLayer::Qdisc, in_qdisc(skb)) } else { Start::Unknown };
    let sampled = match start {
        Start::At(_) => true,
        Start::NotSampled => false,
        Start::Unknown => completes && sample::chosen(),
    };
    let now = if sampled { clock::monotonic() } else { 0 };
    match start {
        Start::At(entry) => ended(TransmitLayer::Qdisc, transport, entry, now, recipient(skb, mode, selected)),
        Start::Unknown if waited => transmit::unmatched(TransmitLayer::Qdisc, transport),
        _ => {}
    }
    if completes && transmit::store_start(TransmitLayer::Device, in_device(skb, device), sampled.then_some(now)) {
        transmit::unmatched(TransmitLayer::Device, transport);
    }
}

/// Tracepoint `consume_skb(struct sk_buff *skb)`, 5.10 to 7.3, with more arguments in later kernels: a packet is freed after
/// use. Only packets with a recorded start come from a driver.
#[btf_tracepoint(function = "consume_skb")]
fn consume_skb(ctx: BtfTracePointContext) -> i32 {
    specialize!(|mode| consumed(ctx.pointer(0), mode))
}

#[inline(always)]
fn consumed(skb: Ptr<SkBuff>, mode: FilterMode) {
    let start = transmit::take_start(TransmitLayer::Device, in_device(skb, skb.follow(&SKB_DEVICE)));
    if let Start::At(entry) = start
        && let Some(transport) = transport(skb)
    {
        let recipient = recipient(skb, mode, selected(skb, mode));
        ended(TransmitLayer::Device, transport, entry, clock::monotonic(), recipient);
    }
}

/// Removes the recorded starts of a dropped packet.
#[inline(always)]
pub(super) fn dropped(skb: Ptr<SkBuff>) {
    let sock = skb.follow(&SKB_SK);
    if measures(TransmitLayer::Transport) && served::sent() && !sock.is_null() {
        transmit::take_start(TransmitLayer::Transport, in_stack(skb, sock));
    }
    if measures(TransmitLayer::Qdisc) {
        transmit::take_start(TransmitLayer::Qdisc, in_qdisc(skb));
    }
    if measures(TransmitLayer::Device) {
        transmit::take_start(TransmitLayer::Device, in_device(skb, skb.follow(&SKB_DEVICE)));
    }
}

/// Records the end of a layer.
#[inline(always)]
fn ended(layer: TransmitLayer, transport: Transport, entry: u64, now: u64, recipient: Recipient) {
    // One branch per protocol, so that each has its histogram at a constant offset.
    match transport {
        Transport::Tcp => transmit::ended(layer, Transport::Tcp, entry, now, recipient),
        Transport::Udp => transmit::ended(layer, Transport::Udp, entry, now, recipient),
    }
}

/// Returns true if the filter selects a packet that has its device, except for the workload; `None` if an attribute is unknown.
#[inline(always)]
fn selected(skb: Ptr<SkBuff>, mode: FilterMode) -> Option<bool> {
    if mode == FilterMode::Off { Some(true) } else { filter::selects(&outgoing(skb)) }
}

/// Returns the slot and group of a packet, given the result of [`selected`].
#[inline(always)]
fn recipient(skb: Ptr<SkBuff>, mode: FilterMode, selected: Option<bool>) -> Recipient {
    let slot = slot_of(skb);
    if mode == FilterMode::Off {
        return Recipient { slot, group: None, verdict: Verdict::Measured };
    }
    let verdict = match filter::selects_all(selected, slot) {
        Some(true) => Verdict::Measured,
        Some(false) => Verdict::Excluded,
        None => Verdict::Lost(PacketLoss::NotFilterable),
    };
    let is_measured = matches!(verdict, Verdict::Measured);
    let group = if is_measured { group::of(&outgoing(skb), slot, sample::share()) } else { None };
    Recipient { slot, group, verdict }
}

/// Returns true if packets can wait in a device's qdisc. Virtual devices have none by default.
#[inline(always)]
fn has_qdisc(device: Ptr<NetDevice>) -> bool {
    let root = device.follow(&DEVICE_QDISC);
    root.read(&QDISC_ENQUEUE) != 0 || root.read(&QDISC_FLAGS) & MULTIQUEUE != 0
}

/// Returns true if a device has a driver that frees packets after transmission. A software device passes them on.
#[inline(always)]
fn is_hardware(device: Ptr<NetDevice>) -> bool {
    device.read(&DEVICE_PARENT) != 0
}

/// Returns the transport protocol of a packet's sender if the time of sending may be known. TCP sets the departure time of
/// every packet. It is stale for an acknowledgement that a reader caused (`__tcp_cleanup_rbuf`).
#[inline(always)]
fn sender(skb: Ptr<SkBuff>, sock: Ptr<Sock>) -> Option<Transport> {
    if !is_fullsock(sock) {
        return None;
    }
    match socket::transport(sock.read(&SOCK_PROTOCOL))? {
        Transport::Tcp if skb.read(&SKB_TRUESIZE) == PURE_ACKNOWLEDGEMENT => None,
        transport => Some(transport),
    }
}

/// Returns the transport protocol of a packet with an IP header, from its socket or else from the header.
#[inline(always)]
fn transport(skb: Ptr<SkBuff>) -> Option<Transport> {
    let sock = skb.follow(&SKB_SK);
    if !sock.is_null() && is_inet(sock) {
        return if is_fullsock(sock) { socket::transport(sock.read(&SOCK_PROTOCOL)) } else { Some(Transport::Tcp) };
    }
    transport_in_header(skb, skb.read(&SKB_PROTOCOL))
}

/// Returns the slot of the owner of the sending socket.
#[inline(always)]
fn slot_of(skb: Ptr<SkBuff>) -> Slot {
    if owner::by() == ownership::OFF {
        return Slot::NODE;
    }
    slot_of_owner(skb.follow(&SKB_SK)).unwrap_or(Slot::NODE)
}

/// Returns the key of a datagram between its socket and its device. The port distinguishes it from earlier packets at its
/// address. Its length is not part of the key, because it changes on the way.
#[inline(always)]
fn in_stack(skb: Ptr<SkBuff>, sock: Ptr<Sock>) -> u64 {
    mix_twice(skb.identity() ^ u64::from(sock.read(&SOCK_PORT)) << 48)
}

/// Returns the key of a packet in a qdisc. If the qdisc's exit segments the packet, each segment is shorter and has another key.
#[inline(always)]
fn in_qdisc(skb: Ptr<SkBuff>) -> u64 {
    let (length, timestamp) = (skb.read(&SKB_LENGTH), skb.read(&SKB_TSTAMP));
    mix_twice(skb.identity() ^ u64::from(length) << 48 ^ timestamp)
}

/// Returns the key of a packet in a driver. The device distinguishes it from received packets.
#[inline(always)]
fn in_device(skb: Ptr<SkBuff>, device: Ptr<NetDevice>) -> u64 {
    mix_twice(skb.identity() ^ device.identity() << 16)
}
