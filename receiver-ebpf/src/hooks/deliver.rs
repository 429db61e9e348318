//! Delivery to the transport protocol.

use aya_ebpf::{
    bindings::__sk_buff,
    macros::{cgroup_skb, fentry, kprobe},
    programs::{FEntryContext, ProbeContext, SkBuffContext},
};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, Layer, ReceivePoint, Transport},
    workload::{Slot, ownership},
};

use super::{
    ETH_P_IP, ETH_P_IPV6, IPPROTO_UDP,
    arguments::first,
    reached,
    subject::{Filtered, entering},
};
use crate::{
    kernel::{
        clock,
        context::{Arguments as _, SkbContext},
        event::PacketEvent,
        fields::SkBuff,
        filter::{FilterMode, specialize},
        owner::{self, or_node},
        pointer::{Access, Ptr},
        sample,
        tcp::IPPROTO_TCP,
        tcp_header::TcpHeader,
        unread,
    },
    signals::{
        network_cpu, network_functions, receive_wait,
        tcp_transactions::{self, Segment},
    },
};

/// Bytes of the shortest IPv4 or IPv6 header.
const SHORTEST_HEADER: usize = 20;

/// Handles a packet that still has its device.
#[inline(always)]
fn delivered<A: Access>(skb: Ptr<SkBuff, A>, transport: Transport, version: IpVersion, mode: FilterMode) {
    let point = ReceivePoint::of(Layer::Transport, transport, version);
    reached(point, &entering(skb), PacketEvent::delivered(skb), mode, || owner::slot_of_namespace(skb));
}

/// Declares two programs, for fentry and kprobe, on a function with a packet as its first argument.
macro_rules! protocols {
    ($($(#[$prototype:meta])* $entry:ident $probe:ident $transport:ident $version:ident;)+) => {$(
        $(#[$prototype])*
        #[fentry]
        fn $entry(ctx: FEntryContext) -> i32 {
            specialize!(|mode| delivered(ctx.pointer(0), Transport::$transport, IpVersion::$version, mode))
        }

        $(#[$prototype])*
        #[kprobe]
        fn $probe(ctx: ProbeContext) -> i32 {
            delivered(Ptr::at(first(&ctx)), Transport::$transport, IpVersion::$version, FilterMode::On);
            0
        }
    )+};
}

protocols! {
    /// `int tcp_v4_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    tcp_v4_rcv tcp_v4_rcv_probe Tcp Ipv4;
    /// `int tcp_v6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    tcp_v6_rcv tcp_v6_rcv_probe Tcp Ipv6;
    /// `int udp_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    udp_rcv udp_rcv_probe Udp Ipv4;
    /// `int udpv6_rcv(struct sk_buff *skb)`, 5.10 to 7.3.
    udpv6_rcv udpv6_rcv_probe Udp Ipv6;
}

/// `cgroup_skb/ingress`: `sk_filter_trim_cap` runs it when the packet's socket is known. It accepts every packet.
#[cgroup_skb(ingress)]
// Inlined by force: the compiler leaves a function of this length outlined.
#[inline(always)]
fn cgroup_ingress(ctx: SkBuffContext) -> i32 {
    let skb = SkbContext::of(&ctx);
    specialize!(|mode| filtered(skb, mode));
    1
}

#[inline(always)]
fn filtered(skb: SkbContext, mode: FilterMode) {
    let early = sample::early();
    // One branch per receive point, so that each has its histogram at a constant offset.
    match protocols(skb) {
        Some((Transport::Tcp, IpVersion::Ipv4)) => passed(skb, Transport::Tcp, IpVersion::Ipv4, early, mode),
        Some((Transport::Tcp, IpVersion::Ipv6)) => passed(skb, Transport::Tcp, IpVersion::Ipv6, early, mode),
        Some((Transport::Udp, IpVersion::Ipv4)) => passed(skb, Transport::Udp, IpVersion::Ipv4, early, mode),
        Some((Transport::Udp, IpVersion::Ipv6)) => passed(skb, Transport::Udp, IpVersion::Ipv6, early, mode),
        None => {}
    }
}

#[inline(always)]
fn passed(skb: SkbContext, transport: Transport, version: IpVersion, early: u64, mode: FilterMode) {
    let sampled = PacketEvent::with_timestamp(skb.timestamp(), early);
    // The compiler saves the words of the event during the calls below. They must be initialized in every case, or the verifier
    // rejects the program.
    let (event, state) = match sampled {
        Ok(Some(event)) => (event, Ok(true)),
        Ok(None) => (PacketEvent::EMPTY, Ok(false)),
        Err(loss) => (PacketEvent::EMPTY, Err(loss)),
    };
    if transport == Transport::Tcp
        && (receive_wait::begins_at_transport() || tcp_transactions::enabled())
        && let Some(header) = TcpHeader::of(skb, version)
    {
        let now = if event.now == 0 { early } else { event.now };
        segment_arrives(skb, &header, event.timestamp, now);
        if tcp_transactions::enabled() {
            let TcpHeader { sequence, acknowledged, data, flags } = header;
            let numbers = u64::from(sequence) << 32 | u64::from(acknowledged);
            let rest = u64::from(data) << 8 | u64::from(flags);
            if advance_transactions(skb.raw(), numbers, rest, now) == 0
                && begin_transactions(skb.raw(), numbers, rest, now) != 0
            {
                advance_transactions(skb.raw(), numbers, rest, now);
            }
        }
    }
    let slot = charged(skb, &event, state.is_err());
    let sampled = state.map(|is_measured| is_measured.then_some(event));
    reached(ReceivePoint::of(Layer::Transport, transport, version), &Filtered(skb), sampled, mode, move || slot);
}

/// Stores the arrival of a segment if it has data and is in the sample, or if the wait of its first byte is. `early` is the time, or zero
/// if the clock was not read.
#[inline(always)]
fn segment_arrives(skb: SkbContext, header: &TcpHeader, timestamp: u64, early: u64) {
    let from = header.sequence;
    if !receive_wait::begins_at_transport() || header.data == 0 || timestamp == 0 && !sample::takes(from) {
        return;
    }
    let now = if early == 0 { clock::monotonic() } else { early };
    if let Some(socket) = skb.socket()
        && let Some(sock) = skb.kernel_socket()
    {
        unread::arrives(socket, sock, from, timestamp, now);
    }
}

/// Advances the transactions of a segment's connection. Returns zero if they have not begun. `numbers` are the sequence numbers of the
/// header, `rest` the number of bytes of data and the flags.
///
/// The verifier follows a global function once for a program. Others it follows again for each path to their call. The stacks of nested
/// calls share 512 bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn advance_transactions(skb: *const __sk_buff, numbers: u64, rest: u64, early: u64) -> u32 {
    // A constant to the verifier, which also follows functions that are never called (before 6.8).
    if !tcp_transactions::enabled() {
        return 1;
    }
    let segment = Segment::of(SkbContext::at(skb), numbers, rest, early);
    u32::from(segment.is_none_or(|segment| tcp_transactions::advance(&segment, || segment.slot())))
}

/// Begins the transactions of a segment's connection, with the arguments of [`advance_transactions`]. Returns zero if the segment does not
/// advance them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin_transactions(skb: *const __sk_buff, numbers: u64, rest: u64, early: u64) -> u32 {
    if !tcp_transactions::enabled() {
        return 0;
    }
    let segment = Segment::of(SkbContext::at(skb), numbers, rest, early);
    u32::from(segment.is_some_and(|segment| tcp_transactions::begin(&segment, || segment.slot())))
}

impl Segment {
    /// Returns the segment of a packet; `None` without a socket.
    #[inline(always)]
    fn of(skb: SkbContext, numbers: u64, rest: u64, early: u64) -> Option<Self> {
        let header = TcpHeader {
            sequence: (numbers >> 32) as u32,
            acknowledged: numbers as u32,
            data: (rest >> 8) as u32,
            flags: rest as u8,
        };
        Some(Self { skb, socket: skb.socket()?, sock: skb.kernel_socket()?, header, early })
    }

    /// Returns the slot of the receiving socket's owner.
    #[inline(always)]
    fn slot(&self) -> Slot {
        or_node(|| slot_of(self.skb))
    }
}

/// Charges CPU time to the receiving socket of a packet in the sample. Returns the slot of the socket's owner, or the node's slot
/// for a packet that is not measured. `is_lost` is true for a packet without a timestamp.
#[inline(always)]
fn charged(skb: SkbContext, event: &PacketEvent, is_lost: bool) -> Slot {
    let now = if event.now != 0 {
        event.now
    } else if is_lost && (network_cpu::divides() || network_functions::charges()) && sample::chosen() {
        // No latency without a timestamp, but the packet takes CPU time.
        clock::monotonic()
    } else {
        return Slot::NODE;
    };
    let slot = or_node(|| slot_of(skb));
    network_cpu::delivered(slot, now);
    network_functions::received(slot, now);
    slot
}

/// `cgroup_skb/ingress` for hosts where [`cgroup_ingress`] does not serve the transport layer: it charges CPU time only.
#[cgroup_skb(ingress)]
fn cgroup_charge(ctx: SkBuffContext) -> i32 {
    let skb = SkbContext::of(&ctx);
    match PacketEvent::now(|| skb.timestamp()) {
        Ok(Some(event)) => charged(skb, &event, false),
        Ok(None) => Slot::NODE,
        Err(_) => charged(skb, &PacketEvent::EMPTY, true),
    };
    1
}

/// Returns the slot of the receiving socket's owner.
#[inline(always)]
fn slot_of(skb: SkbContext) -> Slot {
    let cookie = owner::cookie(skb).unwrap_or_else(|| skb.create_cookie());
    owner::slot_of_socket(cookie, || owner_of(skb))
}

/// Returns the owner of the receiving socket; zero if there is none.
#[inline(always)]
fn owner_of(skb: SkbContext) -> u64 {
    let Some(socket) = skb.socket() else { return 0 };
    match owner::reader(socket) {
        Some(reader) => reader,
        None if owner::by() == ownership::UNIFIED => skb.cgroup_id(),
        None => 0,
    }
}

/// Returns the protocols of a packet; `None` for protocols that the layer does not cover.
#[inline(always)]
fn protocols(skb: SkbContext) -> Option<(Transport, IpVersion)> {
    let protocol = skb.protocol();
    let header = skb.bytes::<SHORTEST_HEADER>()?;
    let (version, number) = match protocol {
        ETH_P_IP => (IpVersion::Ipv4, header[9]),
        ETH_P_IPV6 => (IpVersion::Ipv6, header[6]),
        _ => return None,
    };
    let transport = match number {
        IPPROTO_TCP => Transport::Tcp,
        IPPROTO_UDP => Transport::Udp,
        // An IPv6 packet may have extension headers before the transport header.
        _ if protocol == ETH_P_IPV6 => transport_of_socket(skb)?,
        _ => return None,
    };
    Some((transport, version))
}

/// Returns the transport protocol of the receiving socket.
#[inline(always)]
fn transport_of_socket(skb: SkbContext) -> Option<Transport> {
    match skb.socket_protocol()? as u8 {
        IPPROTO_TCP => Some(Transport::Tcp),
        IPPROTO_UDP => Some(Transport::Udp),
        _ => None,
    }
}
