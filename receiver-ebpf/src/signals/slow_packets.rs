//! Slow packets: packets whose latency exceeds a threshold, and a uniform share of all packets, become events.
//!
//! Nothing at an early layer predicts that a packet will be slow. So every packet stores its [path](super::packet_path), and the arrival
//! in the socket's queue moves it to the record of the waiting packet.

use aya_ebpf::{
    helpers::generated::{bpf_get_current_task, bpf_ringbuf_output},
    macros::map,
    maps::{Array, PerCpuArray, RingBuf},
};
use undercurrent_ebpf::abi::{
    ABSENT,
    latency::{IpVersion, Layer, ReceivePoint, Transport},
    slow::{CHOICES, Choice, PAYLOAD, SENT_HERE, Sharing, SlowOwner, SlowPacket, datagram, flag},
    waiting,
    workload::Slot,
};

mod search;

use self::search::Search;
pub use super::slow_cells::enabled;
use super::{
    forwarded, packet_path, reader_states, receive_wait,
    slow_cells::SLOW,
    waiting_packets::{self, UNKNOWN},
};
use crate::kernel::{
    cells::{self, MMAPABLE},
    clock,
    constant::constants,
    event::PacketEvent,
    field::read_at,
    fields::{
        SKB_HEAD, SKB_NETWORK_HEADER, SKB_TRANSPORT_HEADER, SOCK_DADDR, SOCK_DPORT, SOCK_PORT, SOCK_RCV_SADDR,
        SOCK_V6_DADDR, SOCK_V6_RCV_SADDR, SkBuff, Sock, TASK_COMM, TASK_GROUP_LEADER, TASK_TGID, Task,
    },
    filter::Subject,
    group::Number,
    payload::Buffer,
    pointer::{Probed, Ptr},
    shared, variable,
    workarounds::element,
};

/// Selected packets.
#[map]
static SLOW_PACKETS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// An event with payload.
#[repr(C)]
struct Scratch {
    packet: SlowPacket,
    payload: Buffer,
    search: Search,
}

/// The event that a CPU composes, for TCP and for UDP.
#[map]
static SLOW_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(2, 0);

/// The bit of UDP in the index of a receive point at `socket_read`.
const UDP: usize = {
    let udp = ReceivePoint::of(Layer::SocketRead, Transport::Udp, IpVersion::Ipv4).index() & 2;
    assert!(ReceivePoint::of(Layer::SocketRead, Transport::Tcp, IpVersion::Ipv4).index() & 2 != udp);
    udp
};

/// The workloads that share each budget, by [`Choice`].
#[map]
static SLOW_SHARING: Array<Sharing> = Array::with_max_entries(CHOICES as u32, 0);

/// The selection of each workload's packets, by slot. Slow packets are rare, so all CPUs share an entry.
#[map]
static SLOW_OWNERS: Array<SlowOwner> = Array::with_max_entries(1, MMAPABLE);

/// The threshold of all workloads in nanoseconds, the lowest one. User space sets it.
#[unsafe(export_name = "slow.threshold")]
#[unsafe(link_section = ".data.slow")]
static THRESHOLD: u64 = 1 << 62;

constants! {
    /// Nanoseconds between two events of a budget, by [`Choice`].
    INTERVAL = "slow.interval", u32::MAX;
    UNIFORM_INTERVAL = "slow.uniform_interval", u32::MAX;
    /// The result of [`uniform_mask`](undercurrent_ebpf::abi::slow::uniform_mask).
    UNIFORM_MASK = "slow.uniform_mask", u32::MAX;
}

/// Nanoseconds for which an unused budget accumulates.
const BURST: u64 = 1_000_000_000;

/// The first implausible age, 13 days: it comes from the comparison of different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// Selects packets at a read that no late segment blocked. `wait` is the result of [`waiting_packets::end`].
#[inline(always)]
pub fn read(
    point: ReceivePoint,
    packet: &impl Subject,
    event: &PacketEvent,
    wait: u64,
    slot: Slot,
    group: Option<Number>,
) {
    if !enabled() {
        return;
    }
    let age = event.age();
    if !exceeds(age, variable(&THRESHOLD)) && !is_uniform(event.timestamp) {
        return;
    }
    let choice = choose(slot.0.into(), event.timestamp, event.now, age);
    if choice == NONE {
        return;
    }
    let Some(scratch) = SLOW_SCRATCH.get_ptr_mut((point.transport == Some(Transport::Udp)).into()) else { return };
    // SAFETY: the scratch buffer of this CPU. The programs of one transport protocol do not interrupt each other.
    let length = packet.payload(unsafe { &raw mut (*scratch).payload });
    let (sock, skb) = packet.origin();
    let flags = if wait == UNKNOWN { 0 } else { flag::RECORDED };
    let flags = if choice == Choice::Uniform as u64 { flags | flag::UNIFORM } else { flags };
    let group = group.map_or(ABSENT, Number::get);
    let packed = u64::from(group) << 32 | u64::from(slot.0) << 16 | u64::from(flags) << 8 | point.index() as u64;
    let mix = waiting_packets::mix(point, packet, event);
    selected(&Facts { timestamp: event.timestamp, now: event.now, wait, length, mix }, sock, skb, packed);
}

/// The facts about a selected packet.
struct Facts {
    timestamp: u64,
    now: u64,
    wait: u64,
    /// Bytes of payload in the scratch buffer.
    length: u32,
    /// The result of [`waiting_packets::mix`].
    mix: u64,
}

/// Returns true for the packets of the uniform share.
#[inline(always)]
fn is_uniform(timestamp: u64) -> bool {
    waiting::mix(timestamp) & u64::from(UNIFORM_MASK.get()) == 0
}

/// Returns true if a packet is older than a threshold. An age is negative if the clock was set.
#[inline(always)]
fn exceeds(age: u64, threshold: u64) -> bool {
    age as i64 > threshold as i64
}

/// The result of [`choose`] for a packet without an event.
const NONE: u64 = CHOICES as u64;

/// Returns the [`Choice`] of a packet, or [`NONE`]. Counts a selected packet that the budget does not admit. A function of its own, because
/// only packets that exceed the threshold of all workloads and those of the uniform share need it.
#[inline(never)]
fn choose(slot: u64, timestamp: u64, now: u64, age: u64) -> u64 {
    let Some(owner) = SLOW_OWNERS.get_ptr_mut(slot as u32) else { return NONE };
    // SAFETY: an entry of the map, which lives as long as the program.
    let owner = unsafe { &mut *owner };
    let choice = if exceeds(age, variable(&THRESHOLD)) && exceeds(age, owner.threshold) {
        Choice::Slow
    } else if is_uniform(timestamp) {
        Choice::Uniform
    } else {
        return NONE;
    };
    if admits(owner, choice, now) {
        return choice as u64;
    }
    // SAFETY: the array has two elements.
    let count = unsafe { element(&mut owner.over_budget, choice as usize) };
    // The programs of several CPUs count, and those of TCP and UDP may preempt each other.
    shared::add(count, 1);
    NONE
}

/// Sends the event of a selected packet. A function of its own keeps the programs small.
///
/// `packed` contains, from the top, the group, the slot, the flags and the receive point. It decides branches, so it is an argument of
/// its own, in a register. Before Linux 6.8 the verifier does not track that a branch depends on a number that is passed in memory: it
/// removes the branch of IPv6 if it verifies a packet of IPv4 first ("bpf: support non-r10 register spill/fill to/from stack in precision
/// tracking").
#[inline(never)]
fn selected(facts: &Facts, sock: Ptr<Sock, Probed>, skb: Ptr<SkBuff, Probed>, packed: u64) {
    let Facts { timestamp, now, wait, length, mix } = *facts;
    let (point, flags) = (packed as u8, (packed >> 8) as u8);
    let offset = clock::wall(0);
    if now.wrapping_add(offset).wrapping_sub(timestamp) >= IMPLAUSIBLE {
        return;
    }
    let length = search::passed(length);
    let is_udp = usize::from(point) & 2 == UDP;
    let Some(scratch) = SLOW_SCRATCH.get_ptr_mut(is_udp.into()) else { return };
    let version = if point & 1 == 0 { IpVersion::Ipv4 } else { IpVersion::Ipv6 };
    let (addresses, ports) = ends(sock, skb, version);
    let enqueued = now.wrapping_sub(wait);
    // SAFETY: the helper has no arguments.
    let leader = Ptr::<Task, Probed>::at(unsafe { bpf_get_current_task() }).follow(&TASK_GROUP_LEADER);
    let [ip, transport] = if !is_udp && receive_wait::begins_at_transport() {
        [0, enqueued]
    } else {
        waiting_packets::passed(mix, enqueued)
    };
    let (sent, ip) = if is_udp {
        (packet_path::datagram_sent_at(datagram::key(skb.typed_identity(), ports[1])), ip)
    } else if ip & SENT_HERE != 0 {
        (ip ^ SENT_HERE, 0)
    } else {
        (0, ip)
    };
    let packet = SlowPacket {
        timestamp,
        now,
        offset,
        enqueued,
        sent,
        host: forwarded::time_of(timestamp),
        passed: [ip, transport],
        reader: reader_states::of_current(),
        addresses,
        process_name: leader.read(&TASK_COMM),
        ports,
        process: leader.read(&TASK_TGID),
        group: (packed >> 32) as u32,
        length,
        slot: (packed >> 16) as u16,
        point,
        flags,
        padding: 0,
    };
    let bytes = size_of::<SlowPacket>() as u64 + u64::from(length & (PAYLOAD as u32 - 1));
    // SAFETY: the scratch buffer of this CPU has at least `bytes` bytes.
    let failed = unsafe {
        (*scratch).packet = packet;
        bpf_ringbuf_output((&raw const SLOW_PACKETS).cast_mut().cast(), scratch.cast(), bytes, 0)
    };
    if failed != 0
        && let Some(cells) = cells::here(&SLOW)
    {
        shared::add(&raw mut cells.full, 1);
    }
}

/// Takes an event from a workload's part of a budget; returns false if that is exhausted. Workloads with selected packets in this period or
/// the one before have equal parts. A workload alone has half of the events of slow packets, which are more than the spans of the budget.
///
/// This is the generic cell rate algorithm (ITU-T I.371) without an atomic exchange, which 5.10 lacks. Two CPUs may take one event at
/// the same time; user space then drops one.
#[inline(always)]
fn admits(owner: &mut SlowOwner, choice: Choice, now: u64) -> bool {
    let Some(sharing) = SLOW_SHARING.get_ptr_mut(choice as u32) else { return false };
    // SAFETY: an entry of the map, which lives as long as the program.
    let sharing = unsafe { &mut *sharing };
    // SAFETY: both arrays have two elements.
    let (paid, last) =
        unsafe { (element(&mut owner.paid, choice as usize), element(&mut owner.period, choice as usize)) };
    let period = Sharing::period(now);
    let sharers = sharing.add(period, *last);
    *last = period;
    let (interval, least) = match choice {
        Choice::Slow => (INTERVAL.get(), 2),
        Choice::Uniform => (UNIFORM_INTERVAL.get(), 1),
    };
    let interval = u64::from(interval) * if sharers > least { sharers } else { least };
    let earliest = now.saturating_sub(if interval > BURST { interval } else { BURST });
    let next = if *paid > earliest { *paid } else { earliest } + interval;
    if next > now {
        return false;
    }
    *paid = next;
    true
}

/// Returns the addresses and ports of a packet, local and peer: those of the packet's headers, or those of its connection. Unknown ones are
/// zero.
#[inline(always)]
fn ends(sock: Ptr<Sock, Probed>, skb: Ptr<SkBuff, Probed>, version: IpVersion) -> ([[u64; 2]; 2], [u16; 2]) {
    if !skb.is_null() {
        return headers(skb, version);
    }
    let addresses = match version {
        IpVersion::Ipv4 => {
            [u64::from(sock.read(&SOCK_RCV_SADDR)), u64::from(sock.read(&SOCK_DADDR))].map(|address| [address, 0])
        }
        IpVersion::Ipv6 => [sock.get(&SOCK_V6_RCV_SADDR), sock.get(&SOCK_V6_DADDR)].map(Option::unwrap_or_default),
    };
    (addresses, [sock.read(&SOCK_PORT), u16::from_be(sock.read(&SOCK_DPORT))])
}

/// Returns the destination and the source in a received packet's headers.
#[inline(always)]
fn headers(skb: Ptr<SkBuff, Probed>, version: IpVersion) -> ([[u64; 2]; 2], [u16; 2]) {
    let head = skb.read(&SKB_HEAD);
    let network = head + u64::from(skb.read(&SKB_NETWORK_HEADER));
    let transport = head + u64::from(skb.read(&SKB_TRANSPORT_HEADER));
    let addresses = match version {
        IpVersion::Ipv4 => [16, 12].map(|offset| [read_at::<u32>(network + offset).unwrap_or(0).into(), 0]),
        IpVersion::Ipv6 => [24, 8].map(|offset| read_at(network + offset).unwrap_or_default()),
    };
    (addresses, [2, 0].map(|offset| u16::from_be(read_at(transport + offset).unwrap_or(0))))
}
