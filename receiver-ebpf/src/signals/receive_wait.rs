//! `undercurrent.network.receive.wait.duration`: from a packet's arrival in its socket's queue to its read.
//!
//! The receive timestamp identifies the packet. It is available at the read even if the packet is already freed.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{IpVersion, Series, Transport, waiting},
    loss::PacketLoss,
    workload::Slot,
};

use super::{switch, timings};
use crate::kernel::{event::PacketEvent, group::Number, served};

switch!("receive_wait");

/// Start times of waiting packets.
#[map]
static WAITING: Array<u64> = Array::with_max_entries(1, 0);

/// Records the time at which a packet entered its socket's queue.
#[inline(always)]
pub fn store_start(event: &PacketEvent) {
    if !enabled() {
        return;
    }
    let mix = waiting::mix(event.timestamp);
    if let Some(entry) = WAITING.get_ptr_mut(waiting::index(mix)) {
        // SAFETY: an entry of the map, which lives as long as the program. Another CPU may overwrite it.
        unsafe { *entry = waiting::entry(mix, event.now) };
    }
}

/// Records the wait of a packet, for its group or else for the slot. The first read ends the wait of a packet that is read
/// in parts.
#[inline(always)]
pub fn ended(event: &PacketEvent, transport: Transport, version: IpVersion, slot: Slot, group: Option<Number>) {
    if !enabled() || !served::enqueued() {
        return;
    }
    let series = Series::Wait(transport, version);
    let mix = waiting::mix(event.timestamp);
    let Some(entry) = WAITING.get_ptr_mut(waiting::index(mix)) else { return };
    // SAFETY: an entry of the map, which lives as long as the program.
    match waiting::since(unsafe { *entry }, mix, event.now) {
        // The time in an entry wraps around, so it is ambiguous for an older packet.
        Some(wait) if event.age() >> waiting::TIME == 0 => {
            // SAFETY: an entry of the map, which lives as long as the program.
            unsafe { *entry = 0 };
            timings::record_in(group, series, wait, event.weight, slot);
        }
        _ => timings::lost(series, PacketLoss::Unmatched, event.weight),
    }
}
