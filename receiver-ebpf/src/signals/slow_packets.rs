//! Slow packets: packets whose latency exceeds a threshold, and a uniform share of all packets, become events.
//!
//! Nothing at an early layer predicts that a packet will be slow. So every packet stores its time at each layer in a scratch buffer of
//! the CPU, and the arrival in the socket's queue moves these times to the record of the waiting packet.

use aya_ebpf::{
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_get_current_task, bpf_ringbuf_output},
    },
    macros::map,
    maps::{Array, PerCpuArray, RingBuf},
};
use undercurrent_ebpf::abi::{
    ABSENT,
    latency::{IpVersion, Layer, ReceivePoint, Transport, waiting},
    slow::{
        CHOICES, Choice, DEPARTED, DEPARTURE, Departed, PASSING, PAYLOAD, Passage, SlowCells, SlowPacket, WAKEUPS,
        Wakeup, flag,
    },
    workload::Slot,
};

use super::{receive_wait, switch};
use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    event::PacketEvent,
    field::read_at,
    fields::{
        SKB_HEAD, SKB_NETWORK_HEADER, SKB_TRANSPORT_HEADER, SOCK_DADDR, SOCK_DPORT, SOCK_PORT, SOCK_RCV_SADDR,
        SOCK_V6_DADDR, SOCK_V6_RCV_SADDR, SkBuff, Sock, TASK_COMM, TASK_GROUP_LEADER, TASK_TGID, Task,
    },
    filter::Subject,
    group::Number,
    load_time_value,
    payload::Buffer,
    pointer::{Probed, Ptr},
};

switch!("slow_packets");

/// The scratch buffers and counts by CPU.
#[map]
static SLOW: ByCpu<SlowCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Selected packets.
#[map]
static SLOW_PACKETS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// An event with payload.
#[repr(C)]
struct Scratch {
    packet: SlowPacket,
    payload: Buffer,
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

/// The state of each budget: the time at which all admitted events are paid for, nanoseconds of the monotonic clock.
#[map]
static SLOW_BUDGETS: Array<u64> = Array::with_max_entries(CHOICES as u32, 0);

/// The threshold in nanoseconds. User space sets it.
#[unsafe(export_name = "slow.threshold")]
#[unsafe(link_section = ".data.slow")]
static THRESHOLD: u64 = 1 << 62;

/// Nanoseconds between two events of a budget, by [`Choice`].
#[unsafe(export_name = "slow.interval")]
#[unsafe(link_section = ".rodata.flags")]
static INTERVAL: u32 = u32::MAX;
#[unsafe(export_name = "slow.uniform_interval")]
#[unsafe(link_section = ".rodata.flags")]
static UNIFORM_INTERVAL: u32 = u32::MAX;

/// The number of packets per packet of the uniform share, a power of two, minus one.
#[unsafe(export_name = "slow.uniform_mask")]
#[unsafe(link_section = ".rodata.flags")]
static UNIFORM_MASK: u32 = u32::MAX;

/// 1 if the wakeups of tasks are recorded.
#[unsafe(export_name = "slow.reader_states")]
#[unsafe(link_section = ".rodata.flags")]
static READER_STATES: u32 = 0;

/// The last wakeups, by the lower bits of the task's id.
#[map]
static LAST_WAKEUPS: Array<Wakeup> = Array::with_max_entries(1, 0);

/// Nanoseconds for which an unused budget accumulates.
const BURST: u64 = 1_000_000_000;

/// The first implausible age, 13 days: it comes from the comparison of different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// Returns the entry of a packet before its socket's queue.
#[inline(always)]
fn passage(cells: &mut SlowCells, timestamp: u64) -> &mut Passage {
    // SAFETY: the index is within the array. A bounds check would remain, and the verifier rejects its panic.
    unsafe { cells.passing.get_unchecked_mut(timestamp as usize % PASSING) }
}

/// Stores the time of a packet at `ip`.
#[inline(always)]
pub fn passed_ip(event: &PacketEvent) {
    if enabled()
        && let Some(cells) = cells::here(&SLOW)
    {
        *passage(cells, event.timestamp) = Passage { timestamp: event.timestamp, times: [event.now, 0] };
    }
}

/// Stores the time of a packet at `transport`. A packet without a time at `ip` may have come from this node.
#[inline(always)]
pub fn passed_transport(event: &PacketEvent, packet: &impl Subject) {
    if enabled()
        && let Some(cells) = cells::here(&SLOW)
    {
        if passage(cells, event.timestamp).timestamp == event.timestamp {
            passage(cells, event.timestamp).times[1] = event.now;
        } else {
            let times = [take_departure(cells, packet.identity()), event.now];
            *passage(cells, event.timestamp) = Passage { timestamp: event.timestamp, times };
        }
    }
}

/// Returns the times of a packet at `ip` and `transport`, as in [`Passage`]; zero if another packet replaced the entry.
#[inline(always)]
pub fn take_passage(timestamp: u64) -> [u64; 2] {
    match cells::here(&SLOW).map(|cells| passage(cells, timestamp)) {
        Some(passage) if passage.timestamp == timestamp => passage.times,
        _ => [0; 2],
    }
}

/// Stores the departure of a packet from a sender on this node, which has no receive timestamp yet. `packet` returns
/// [`Subject::identity`].
#[inline(always)]
pub fn departed(time: u64, packet: impl FnOnce() -> u64) {
    if enabled()
        && let Some(cells) = cells::here(&SLOW)
    {
        let packet = packet();
        *departure(cells, packet) = Departed { packet, time };
    }
}

/// Returns the departure of a packet; zero if it is unknown.
#[inline(always)]
fn take_departure(cells: &mut SlowCells, packet: u64) -> u64 {
    if packet == 0 {
        return 0;
    }
    let departed = departure(cells, packet);
    if departed.packet == packet { core::mem::take(&mut departed.time) | DEPARTURE } else { 0 }
}

/// Returns the entry of a packet from a sender on this node. Packets are 256 bytes apart or more.
#[inline(always)]
fn departure(cells: &mut SlowCells, packet: u64) -> &mut Departed {
    // SAFETY: the index is within the array. A bounds check would remain, and the verifier rejects its panic.
    unsafe { cells.departed.get_unchecked_mut((packet >> 8) as usize % DEPARTED) }
}

/// Selects packets at a read. `wait` is the result of [`receive_wait::end`].
#[inline(always)]
pub fn read(
    point: ReceivePoint,
    packet: &impl Subject,
    event: &PacketEvent,
    wait: u64,
    slot: Slot,
    group: Option<Number>,
) {
    if !enabled() || event.blocked {
        return;
    }
    let age = event.age();
    let choice = if age as i64 > load_time_value(&THRESHOLD) as i64 {
        Choice::Slow
    } else if waiting::mix(event.timestamp) as u32 >> 8 & load_time_value(&UNIFORM_MASK) == 0 {
        Choice::Uniform
    } else {
        return;
    };
    if !admitted(choice == Choice::Uniform, event.now) {
        return;
    }
    let Some(scratch) = SLOW_SCRATCH.get_ptr_mut((point.transport == Some(Transport::Udp)).into()) else { return };
    // SAFETY: the scratch buffer of this CPU. The programs of one transport protocol do not interrupt each other.
    let length = packet.payload(unsafe { &raw mut (*scratch).payload });
    let (sock, skb) = packet.origin();
    let flags = if wait == receive_wait::UNKNOWN { 0 } else { flag::RECORDED };
    let flags = if choice == Choice::Uniform { flags | flag::UNIFORM } else { flags };
    let group = group.map_or(ABSENT, |group| group.0);
    let packed = u64::from(group) << 32 | u64::from(slot.0) << 16 | u64::from(flags) << 8 | point.index() as u64;
    selected(&Facts { timestamp: event.timestamp, now: event.now, wait, packed, length }, sock, skb);
}

/// The facts about a selected packet.
struct Facts {
    timestamp: u64,
    now: u64,
    wait: u64,
    /// From the top: the group, the slot, the flags and the receive point.
    packed: u64,
    /// Bytes of payload in the scratch buffer.
    length: u32,
}

/// Returns true if the budget admits an event; else counts the packet.
#[inline(never)]
fn admitted(uniform: bool, now: u64) -> bool {
    let admits = admits(uniform, now);
    if !admits && let Some(cells) = cells::here(&SLOW) {
        // SAFETY: within the array. A bounds check would remain, and the verifier rejects its panic.
        unsafe { *cells.over_budget.get_unchecked_mut(usize::from(uniform)) += 1 };
    }
    admits
}

/// Sends the event of a selected packet. A function of its own keeps the programs small.
#[inline(never)]
fn selected(facts: &Facts, sock: Ptr<Sock, Probed>, skb: Ptr<SkBuff, Probed>) {
    let Facts { timestamp, now, wait, packed, length } = *facts;
    let (point, flags) = (packed as u8, (packed >> 8) as u8);
    let offset = clock::wall(0);
    if now.wrapping_add(offset).wrapping_sub(timestamp) >= IMPLAUSIBLE {
        return;
    }
    let is_udp = usize::from(point) & 2 == UDP;
    let Some(scratch) = SLOW_SCRATCH.get_ptr_mut(is_udp.into()) else { return };
    let version = if point & 1 == 0 { IpVersion::Ipv4 } else { IpVersion::Ipv6 };
    let (addresses, ports) = ends(sock, skb, version);
    let enqueued = now.wrapping_sub(wait);
    // SAFETY: the helper has no arguments.
    let leader = Ptr::<Task, Probed>::at(unsafe { bpf_get_current_task() }).follow(&TASK_GROUP_LEADER);
    let packet = SlowPacket {
        timestamp,
        now,
        offset,
        enqueued,
        passed: receive_wait::passed(timestamp, enqueued),
        reader: wakeup_of_current(),
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
        cells.full += 1;
    }
}

/// Returns the entry of a task in the wakeups.
#[inline(always)]
fn wakeup(task: u32) -> Option<&'static mut Wakeup> {
    let entry = LAST_WAKEUPS.get_ptr_mut(task % WAKEUPS as u32)?;
    // SAFETY: an entry of the map, which lives as long as the program. The programs of another task with this entry write it at the
    // same time only on another CPU; `task` then belongs to one of them.
    Some(unsafe { &mut *entry })
}

/// Records the wakeup of a task.
#[inline(always)]
pub fn woken(task: u32) {
    if enabled()
        && load_time_value(&READER_STATES) != 0
        && let Some(entry) = wakeup(task)
    {
        *entry = Wakeup { woken: clock::monotonic(), running: 0, task: task.into() };
    }
}

/// Records that a task gets a CPU, the first time after its wakeup.
#[inline(always)]
pub fn switched(to: u32) {
    if enabled()
        && load_time_value(&READER_STATES) != 0
        && let Some(entry) = wakeup(to)
        && entry.task == u64::from(to)
        && entry.running == 0
    {
        entry.running = clock::monotonic();
    }
}

/// Returns the last wakeup of the current task, and the time at which it got a CPU; zero if unknown.
#[inline(always)]
fn wakeup_of_current() -> [u64; 2] {
    let task = bpf_get_current_pid_tgid() as u32;
    match wakeup(task) {
        Some(entry) if entry.task == u64::from(task) => [entry.woken, entry.running],
        _ => [0; 2],
    }
}

/// Takes an event from a budget; returns false if the budget is exhausted.
///
/// This is the generic cell rate algorithm (ITU-T I.371) without an atomic exchange, which 5.10 lacks. Two CPUs may take one event at
/// the same time; user space then drops one.
#[inline(always)]
fn admits(uniform: bool, now: u64) -> bool {
    let interval = if uniform { load_time_value(&UNIFORM_INTERVAL) } else { load_time_value(&INTERVAL) };
    let Some(paid) = SLOW_BUDGETS.get_ptr_mut(uniform.into()) else { return false };
    // SAFETY: an entry of the map, which lives as long as the program.
    let paid = unsafe { &mut *paid };
    let earliest = now.saturating_sub(BURST);
    let next = if *paid > earliest { *paid } else { earliest } + u64::from(interval);
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
