//! Packets on their way out: sent by UDP, at their device's qdisc, at its driver, and done with.
//!
//! A packet passes these once for each device that it is sent through.

use aya_ebpf::{
    macros::{btf_tracepoint, fentry},
    programs::{BtfTracePointContext, FEntryContext},
};
use undercurrent_ebpf::abi::{
    latency::{Transport, waiting::mix_twice},
    loss::PacketLoss,
    transmit::TransmitLayer,
    workload::{Slot, ownership},
};

use super::{
    owner::{is_internet, is_whole, slot_of_owner},
    read::{self, transport_in_header},
    subject::departing,
};
use crate::{
    kernel::{
        address, clock,
        fields::{
            DEVICE_PARENT, DEVICE_QDISC, QDISC_ENQUEUE, QDISC_FLAGS, SKB_DEVICE, SKB_LENGTH, SKB_PROTOCOL, SKB_SK,
            SKB_TRUESIZE, SKB_TSTAMP, SOCK_PORT, SOCK_PROTOCOL,
        },
        filter::{self, Which, apart},
        group, owner,
        pointer::{Pointer, Typed},
        sample, served,
    },
    signals::transmit::{self, Begin, Recipient, measures},
};

/// `TCQ_F_MQROOT`: a qdisc for each queue of the device, and nothing that waits above them.
const MULTIQUEUE: u32 = 8;
/// What an acknowledgement without data takes of its socket's buffer (`skb_set_tcp_pure_ack`).
const PURE_ACKNOWLEDGEMENT: u32 = 2;

/// A datagram of UDP leaves its transport protocol, a `sk_buff` with its IP header.
#[inline(always)]
fn sent(skb: Typed) {
    let sock = skb.follow(&SKB_SK);
    if !measures(TransmitLayer::Transport) || sock.address().is_null() {
        return;
    }
    if let Some(Transport::Udp) = read::transport(sock.read(&SOCK_PROTOCOL)) {
        let time = if sample::chosen() { Some(clock::monotonic()) } else { None };
        if transmit::begun(TransmitLayer::Transport, in_stack(skb, sock), time) {
            transmit::unmatched(TransmitLayer::Transport, Transport::Udp);
        }
    }
}

/// `int ip_send_skb(struct net *net, struct sk_buff *skb)`, 5.10 to 7.3: what a socket of UDP, or a raw one, sends.
#[fentry]
fn ip_send_skb(ctx: FEntryContext) -> i32 {
    // SAFETY: argument 1 is the packet.
    sent(unsafe { Typed::new(ctx.arg(1)) });
    0
}

/// `int ip6_send_skb(struct sk_buff *skb)`, 5.10 to 7.3: the same over IPv6.
#[fentry]
fn ip6_send_skb(ctx: FEntryContext) -> i32 {
    // SAFETY: argument 0 is the packet.
    sent(unsafe { Typed::new(ctx.arg(0)) });
    0
}

/// Tracepoint `net_dev_queue(struct sk_buff *skb)`, 5.10 to 7.3: a packet is handed to its device's qdisc, where it has
/// one.
#[btf_tracepoint(function = "net_dev_queue")]
// It is too long for the compiler to do so unasked, and a call more.
#[inline(always)]
fn net_dev_queue(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 is a packet that has its device.
    apart(|which| unsafe { queued(ctx.arg(0), which) })
}

/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that has its device.
#[inline(always)]
unsafe fn queued(skb: *const u8, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let sock = SKB_SK.load(skb) as *const u8;
        let sender = if measures(TransmitLayer::Transport) { sender(skb, sock) } else { None };
        if let Some(Transport::Tcp) = sender {
            return segment_queued(skb, which);
        }
        let waits = waits(skb);
        let sent = match sender {
            Some(_) if served::sent() => {
                transmit::begin(TransmitLayer::Transport, in_stack(Typed::new(skb), Typed::new(sock)))
            }
            // Nobody saw when, and nothing else is measured.
            _ if !waits => return,
            _ => Begin::Unknown,
        };
        let chosen = chosen(skb, which);
        if chosen == Some(false) {
            return;
        }
        let sampled = match sent {
            Begin::At(_) => true,
            Begin::LeftOut => false,
            Begin::Unknown => sample::chosen(),
        };
        let now = if sampled { clock::monotonic() } else { 0 };
        if let Begin::At(entry) = sent {
            let recipient = recipient(skb, which, chosen);
            transmit::ended(TransmitLayer::Transport, Transport::Udp, entry, now, recipient);
        }
        if waits {
            enters_qdisc(skb, SKB_TSTAMP.load(skb), now, sampled);
        }
    }
}

/// The same of a segment of TCP, which says when it was sent.
///
/// # Safety
/// As for [`queued`].
#[inline(always)]
unsafe fn segment_queued(skb: *const u8, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let chosen = chosen(skb, which);
        if chosen == Some(false) {
            return;
        }
        let sampled = sample::chosen();
        let departure = SKB_TSTAMP.load(skb);
        let now = if sampled { clock::monotonic() } else { 0 };
        if departure == 0 {
            transmit::unstamped();
        } else if sampled {
            transmit::departed(departure, now, recipient(skb, which, chosen));
        }
        if waits(skb) {
            enters_qdisc(skb, departure, now, sampled);
        }
    }
}

/// Whether a packet is about to wait in its device's qdisc, and that is measured.
///
/// # Safety
/// As for [`queued`].
#[inline(always)]
unsafe fn waits(skb: *const u8) -> bool {
    // SAFETY: by the caller.
    measures(TransmitLayer::Qdisc) && unsafe { has_qdisc(SKB_DEVICE.load(skb) as *const u8) }
}

/// A packet enters its device's qdisc, at a time where the sample does not leave it out.
///
/// # Safety
/// As for [`queued`].
#[inline(always)]
unsafe fn enters_qdisc(skb: *const u8, departure: u64, now: u64, sampled: bool) {
    // What is to depart later does not wait until then.
    let begin = if transmit::is_ahead(departure, now) { departure } else { now };
    // SAFETY: by the caller.
    transmit::begun(TransmitLayer::Qdisc, unsafe { in_qdisc(skb) }, sampled.then_some(begin));
}

/// Tracepoint `net_dev_start_xmit(const struct sk_buff *skb, const struct net_device *dev)`, 5.10 to 7.3: the driver gets a
/// packet.
#[btf_tracepoint(function = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the arguments have these types.
    apart(|which| unsafe { started(ctx.arg(0), ctx.arg(1), which) })
}

/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that has its device, and `device` a typed `struct net_device *`.
#[inline(always)]
unsafe fn started(skb: *const u8, device: *const u8, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let waited = measures(TransmitLayer::Qdisc) && has_qdisc(device);
        let completes = measures(TransmitLayer::Device) && is_hardware(device);
        if !(waited || completes) {
            return;
        }
        let chosen = chosen(skb, which);
        if chosen == Some(false) {
            return;
        }
        let Some(transport) = transport(skb) else { return };
        let begin = if waited { transmit::begin(TransmitLayer::Qdisc, in_qdisc(skb)) } else { Begin::Unknown };
        let sampled = match begin {
            Begin::At(_) => true,
            Begin::LeftOut => false,
            Begin::Unknown => completes && sample::chosen(),
        };
        let now = if sampled { clock::monotonic() } else { 0 };
        match begin {
            Begin::At(entry) => ended(TransmitLayer::Qdisc, transport, entry, now, recipient(skb, which, chosen)),
            Begin::Unknown if waited => transmit::unmatched(TransmitLayer::Qdisc, transport),
            _ => {}
        }
        if completes && transmit::begun(TransmitLayer::Device, in_device(skb, device), sampled.then_some(now)) {
            transmit::unmatched(TransmitLayer::Device, transport);
        }
    }
}

/// Tracepoint `consume_skb(struct sk_buff *skb)`, 5.10 to 7.3, later with more arguments: a packet has been used up. It is
/// one that a driver got where its begin there is known.
#[btf_tracepoint(function = "consume_skb")]
fn consume_skb(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 is the packet.
    apart(|which| unsafe { consumed(ctx.arg(0), which) })
}

/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn consumed(skb: *const u8, which: Which) {
    // SAFETY: by the caller.
    unsafe {
        let begin = transmit::begin(TransmitLayer::Device, in_device(skb, SKB_DEVICE.load(skb) as *const u8));
        if let Begin::At(entry) = begin
            && let Some(transport) = transport(skb)
        {
            let recipient = recipient(skb, which, chosen(skb, which));
            ended(TransmitLayer::Device, transport, entry, clock::monotonic(), recipient);
        }
    }
}

/// A packet is dropped: no layer of its way ends.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
pub(super) unsafe fn dropped(skb: *const u8) {
    // SAFETY: by the caller.
    let (packet, sock) = unsafe { (Typed::new(skb), Typed::new(skb).follow(&SKB_SK)) };
    if measures(TransmitLayer::Transport) && served::sent() && !sock.address().is_null() {
        transmit::begin(TransmitLayer::Transport, in_stack(packet, sock));
    }
    if measures(TransmitLayer::Qdisc) {
        // SAFETY: by the caller.
        transmit::begin(TransmitLayer::Qdisc, unsafe { in_qdisc(skb) });
    }
    if measures(TransmitLayer::Device) {
        // SAFETY: by the caller.
        transmit::begin(TransmitLayer::Device, unsafe { in_device(skb, SKB_DEVICE.load(skb) as *const u8) });
    }
}

/// A layer of a packet's way has ended, for whoever the packet counts for.
#[inline(always)]
fn ended(layer: TransmitLayer, transport: Transport, entry: u64, now: u64, recipient: Recipient) {
    // A branch for each protocol, so that each has its histogram at a constant offset.
    match transport {
        Transport::Tcp => transmit::ended(layer, Transport::Tcp, entry, now, recipient),
        Transport::Udp => transmit::ended(layer, Transport::Udp, entry, now, recipient),
    }
}

/// Whether the filter chooses a packet, as far as can be told before its workload is known; `None` where it cannot.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that has its device.
#[inline(always)]
unsafe fn chosen(skb: *const u8, which: Which) -> Option<bool> {
    // SAFETY: by the caller.
    if which == Which::All { Some(true) } else { filter::chooses(&departing(unsafe { Typed::new(skb) })) }
}

/// Who a packet counts for, of which [`chosen`] has said as much.
///
/// # Safety
/// As for [`chosen`].
#[inline(always)]
unsafe fn recipient(skb: *const u8, which: Which, chosen: Option<bool>) -> Recipient {
    // SAFETY: by the caller.
    let (slot, packet) = unsafe { (slot_of(skb), departing(Typed::new(skb))) };
    if which == Which::All {
        return Ok((slot, None));
    }
    match filter::chooses_all(chosen, slot) {
        Some(true) => Ok((slot, group::of(&packet, slot, sample::share()))),
        Some(false) => Err(None),
        None => Err(Some(PacketLoss::Unfiltered)),
    }
}

/// Whether packets can wait in a device's qdisc: virtual devices have none.
///
/// # Safety
/// `device` is a typed `struct net_device *`.
#[inline(always)]
unsafe fn has_qdisc(device: *const u8) -> bool {
    // SAFETY: by the caller; every kernel has these fields.
    unsafe {
        let root = DEVICE_QDISC.load(device) as *const u8;
        QDISC_ENQUEUE.load(root) != 0 || QDISC_FLAGS.load(root) & MULTIQUEUE != 0
    }
}

/// Whether a device has a driver that frees packets when they are sent. What is made of software gives them to somebody
/// else, whose they then are.
///
/// # Safety
/// `device` is a typed `struct net_device *`.
#[inline(always)]
unsafe fn is_hardware(device: *const u8) -> bool {
    // SAFETY: by the caller; every kernel has the field.
    unsafe { DEVICE_PARENT.load(device) != 0 }
}

/// The transport protocol of whoever sent a packet, where it may be known when: TCP says the departure time of every packet, but that
/// of a mere acknowledgement is older where a reader has made room (`__tcp_cleanup_rbuf`).
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer, and `sock` its socket, or null.
#[inline(always)]
unsafe fn sender(skb: *const u8, sock: *const u8) -> Option<Transport> {
    // SAFETY: by the caller.
    unsafe {
        if !is_whole(sock) {
            return None;
        }
        match read::transport(SOCK_PROTOCOL.load(sock))? {
            Transport::Tcp if SKB_TRUESIZE.load(skb) == PURE_ACKNOWLEDGEMENT => None,
            transport => Some(transport),
        }
    }
}

/// The transport protocol of a packet: its socket's, or else its IP header's.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer of a packet that has its IP header.
#[inline(always)]
unsafe fn transport(skb: *const u8) -> Option<Transport> {
    // SAFETY: by the caller.
    unsafe {
        let sock = SKB_SK.load(skb) as *const u8;
        if !sock.is_null() && is_internet(sock) {
            return if is_whole(sock) { read::transport(SOCK_PROTOCOL.load(sock)) } else { Some(Transport::Tcp) };
        }
        transport_in_header(skb, SKB_PROTOCOL.load(skb))
    }
}

/// The slot of whoever owns the socket that sent a packet.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn slot_of(skb: *const u8) -> Slot {
    if owner::by() == ownership::OFF {
        return Slot::NODE;
    }
    // SAFETY: by the caller.
    unsafe { slot_of_owner(SKB_SK.load(skb) as *const u8) }.unwrap_or(Slot::NODE)
}

/// What a datagram between its socket and its device is known by, a `sk_buff` and its `sock`: the port tells it from others that have had
/// its place. Its length changes there.
#[inline(always)]
fn in_stack(skb: Typed, sock: Typed) -> u64 {
    mix_twice(address(skb.address()) ^ u64::from(sock.read(&SOCK_PORT)) << 48)
}

/// What a packet in a qdisc is known by. Those that it is cut into when it leaves are shorter.
///
/// # Safety
/// `skb` is a typed `sk_buff` pointer.
#[inline(always)]
unsafe fn in_qdisc(skb: *const u8) -> u64 {
    // SAFETY: by the caller.
    let (length, stamp) = unsafe { (SKB_LENGTH.load(skb), SKB_TSTAMP.load(skb)) };
    mix_twice(address(skb) ^ u64::from(length) << 48 ^ stamp)
}

/// What a packet that a driver has is known by. Received ones come from elsewhere.
///
/// # Safety
/// `skb` and `device` are pointers that the verifier knows.
#[inline(always)]
unsafe fn in_device(skb: *const u8, device: *const u8) -> u64 {
    mix_twice(address(skb) ^ address(device) << 16)
}
