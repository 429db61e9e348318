//! Records of packets that wait in their socket's queue, for spans of slow packets, for waits of UDP, and for waits of TCP where programs
//! have no socket storage.
//!
//! The receive timestamp identifies data of TCP: it is available at the read even if the packet is already freed. A datagram also has the
//! address of its packet, because datagrams of one sender can have one timestamp.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{ReceivePoint, Transport},
    slow::{Record, Records, record},
    waiting,
};

use super::{packet_path, slow_cells};
use crate::kernel::{event::PacketEvent, filter::Subject, served};

/// Waiting packets.
#[map]
static WAITING: Array<Records> = Array::with_max_entries(1, 0);

/// Returns the mix that identifies a packet in its socket's queue.
#[inline(always)]
pub fn mix(point: ReceivePoint, packet: &impl Subject, event: &PacketEvent) -> u64 {
    let address = if point.transport == Some(Transport::Udp) { packet.address() } else { 0 };
    waiting::mix(event.timestamp ^ address)
}

/// Returns the records at the index of a mix.
#[inline(always)]
fn records(mix: u64) -> Option<&'static mut Records> {
    let records = WAITING.get_ptr_mut(waiting::index(mix))?;
    // SAFETY: an entry of the map, which lives as long as the program. Another CPU may write it at the same time; `check` then
    // matches neither packet.
    Some(unsafe { &mut *records })
}

/// Stores the record of a packet that entered its socket's queue.
#[inline(always)]
pub fn store(mix: u64, event: &PacketEvent) {
    let now = event.now;
    let Some([first, second]) = records(mix) else { return };
    if first.enqueued != 0 && record::is_replaced(second.enqueued, now, mix) {
        *second = *first;
    }
    first.enqueued = now;
    first.check = mix ^ now;
    if slow_cells::enabled() {
        first.passed = packet_path::take(event.timestamp).map(|time| mix ^ time);
    }
}

/// The wait of a packet without a record. It is no `Option`: verifiers before 5.12 reject the copy of an uninitialized payload.
pub const UNKNOWN: u64 = u64::MAX;

/// Returns the wait of a packet in nanoseconds and frees its record; [`UNKNOWN`] without a record. The first read ends the wait of
/// a packet that is read in parts.
#[inline(always)]
pub fn end(mix: u64, event: &PacketEvent) -> u64 {
    if !served::enqueued() {
        return UNKNOWN;
    }
    let Some([first, second]) = records(mix) else { return UNKNOWN };
    match take(first, mix).or_else(|| take(second, mix)) {
        Some(enqueued) => event.now.wrapping_sub(enqueued),
        None => UNKNOWN,
    }
}

/// Returns the time of arrival in a record and frees it; `None` for the record of another packet.
#[inline(always)]
fn take(record: &mut Record, mix: u64) -> Option<u64> {
    let enqueued = record.enqueued;
    if record.check ^ enqueued != mix {
        return None;
    }
    record.enqueued = 0;
    Some(enqueued)
}

/// Returns the times of a packet at `ip` and `transport`; zero if unknown. `enqueued` is the time of arrival that [`end`] found.
#[inline(always)]
pub fn passed(mix: u64, enqueued: u64) -> [u64; 2] {
    let Some(records) = records(mix) else { return [0; 2] };
    for record in records {
        if record.check ^ enqueued == mix {
            return record.passed.map(|time| time ^ mix);
        }
    }
    [0; 2]
}
