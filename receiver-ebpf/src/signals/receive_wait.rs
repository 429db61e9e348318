//! `undercurrent.network.receive.wait.duration`: from a packet's arrival in its socket's queue to its read.
//!
//! The receive timestamp identifies the packet. It is available at the read even if the packet is already freed.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, Transport},
    loss::PacketLoss,
    series::Series,
    slow::{Record, Records, record},
    waiting,
    workload::Slot,
};

use super::{packet_path, slow_packets, switch, timings};
use crate::kernel::{event::PacketEvent, group::Number, served};

switch!("receive_wait");

/// Waiting packets.
#[map]
static WAITING: Array<Records> = Array::with_max_entries(1, 0);

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
pub fn store_start(event: &PacketEvent) {
    if !enabled() && !slow_packets::enabled() {
        return;
    }
    let (mix, now) = (waiting::mix(event.timestamp), event.now);
    let Some([first, second]) = records(mix) else { return };
    if first.enqueued != 0 && record::is_replaced(second.enqueued, now, mix) {
        *second = *first;
    }
    first.enqueued = now;
    first.check = mix ^ now;
    if slow_packets::enabled() {
        first.passed = packet_path::take(event.timestamp).map(|time| mix ^ time);
    }
}

/// The wait of a packet without a record. It is no `Option`: verifiers before 5.12 reject the copy of an uninitialized payload.
pub const UNKNOWN: u64 = u64::MAX;

/// Returns the wait of a packet in nanoseconds and frees its record; [`UNKNOWN`] without a record. The first read ends the wait of
/// a packet that is read in parts.
#[inline(always)]
pub fn end(event: &PacketEvent) -> u64 {
    if !enabled() && !slow_packets::enabled() || !served::enqueued() {
        return UNKNOWN;
    }
    let mix = waiting::mix(event.timestamp);
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
pub fn passed(timestamp: u64, enqueued: u64) -> [u64; 2] {
    let mix = waiting::mix(timestamp);
    let Some(records) = records(mix) else { return [0; 2] };
    for record in records {
        if record.check ^ enqueued == mix {
            return record.passed.map(|time| time ^ mix);
        }
    }
    [0; 2]
}

/// Records the wait of a packet, for its group or else for the slot. `wait` is the result of [`end`].
#[inline(always)]
pub fn ended(
    event: &PacketEvent,
    wait: u64,
    transport: Transport,
    version: IpVersion,
    slot: Slot,
    group: Option<Number>,
) {
    if !enabled() || !served::enqueued() {
        return;
    }
    let series = Series::Wait(transport, version);
    if wait == UNKNOWN {
        timings::lost(series, PacketLoss::Unmatched, event.weight);
    } else {
        timings::record_in(group, series, wait, event.weight, slot);
    }
}
