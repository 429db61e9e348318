//! The path of a packet before its socket's queue, for spans of slow packets.
//!
//! A scratch buffer of the CPU has the times of packets by receive timestamp. A packet from TCP on this node has its departure time until
//! the transport protocol, and no receive timestamp.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::slow::{
    Datagram, LOCAL_PACKETS, LocalPacket, Passage, SENT_HERE, SlowCells, datagram, passing,
};

use super::slow_cells::{SLOW, enabled};
use crate::kernel::{cells, event::PacketEvent, filter::Subject, workarounds::element};

/// Datagrams from senders on this node. Their buffers keep their addresses until the read.
#[map]
static DATAGRAMS: Array<Datagram> = Array::with_max_entries(1, 0);

/// Returns the entry of a packet before its socket's queue.
#[inline(always)]
fn passage(cells: &mut SlowCells, timestamp: u64) -> &mut Passage {
    // SAFETY: the index has as many bits as the array needs.
    unsafe { element(&mut cells.passing, passing(timestamp)) }
}

/// Stores the time of a packet at `ip`.
#[inline(always)]
pub fn passed_ip(event: &PacketEvent) {
    if enabled()
        && let Some(cells) = cells::here(&SLOW)
    {
        let passage = passage(cells, event.timestamp);
        // The time at `transport` of an earlier packet remains, and user space drops it: it is before this packet's receive timestamp.
        passage.timestamp = event.timestamp;
        passage.times[0] = event.now;
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
            let times = [sent_at(cells, packet.identity()), event.now];
            *passage(cells, event.timestamp) = Passage { timestamp: event.timestamp, times };
        }
    }
}

/// Returns the times of a packet at `ip` and `transport`, as in [`Passage`]; zero if another packet replaced the entry.
#[inline(always)]
pub fn take(timestamp: u64) -> [u64; 2] {
    match cells::here(&SLOW).map(|cells| passage(cells, timestamp)) {
        Some(passage) if passage.timestamp == timestamp => passage.times,
        _ => [0; 2],
    }
}

/// Stores when a sender on this node sent a packet, which has no receive timestamp yet. `packet` returns
/// [`Subject::identity`].
#[inline(always)]
pub fn sent_here(time: u64, packet: impl FnOnce() -> u64) {
    if enabled()
        && let Some(cells) = cells::here(&SLOW)
    {
        let packet = packet();
        *local_packet(cells, packet) = LocalPacket { packet, time };
    }
}

/// Returns when a sender on this node sent a packet; zero if it is unknown. The entry remains: a later packet at the same address has another flow, or
/// stores its own time.
#[inline(always)]
fn sent_at(cells: &mut SlowCells, packet: Option<u64>) -> u64 {
    let Some(packet) = packet else { return 0 };
    let local = local_packet(cells, packet);
    if local.packet == packet { local.time | SENT_HERE } else { 0 }
}

/// Returns the entry of a packet from a sender on this node. Packets are 256 bytes apart or more.
#[inline(always)]
fn local_packet(cells: &mut SlowCells, packet: u64) -> &mut LocalPacket {
    // SAFETY: the remainder is within the array.
    unsafe { element(&mut cells.local, (packet >> 8) as usize % LOCAL_PACKETS) }
}

/// Stores the time at which UDP on this node released a datagram. `key` returns its [`datagram::key`].
#[inline(always)]
pub fn datagram_sent(key: impl FnOnce() -> u64, time: u64) {
    if !enabled() {
        return;
    }
    let key = key();
    if let Some(entry) = DATAGRAMS.get_ptr_mut(datagram::index(key)) {
        // SAFETY: an entry of the map, which lives as long as the program. Another CPU may write it too, which the check detects.
        unsafe { *entry = Datagram { time, check: key ^ time } };
    }
}

/// Returns the time at which UDP on this node released the datagram with this key; zero if it is unknown.
#[inline(always)]
pub fn datagram_sent_at(key: u64) -> u64 {
    match DATAGRAMS.get(datagram::index(key)) {
        Some(entry) if entry.check ^ entry.time == key => entry.time,
        _ => 0,
    }
}
