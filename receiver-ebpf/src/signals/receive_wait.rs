//! `undercurrent.network.receive.wait.duration`: from a packet's arrival in its socket's queue until it was read.
//!
//! A packet is found again by its receive timestamp, which a socket's read knows although it may have freed the packet.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{Network, Series, Transport, waiting},
    loss::PacketLoss,
    workload::Slot,
};

use super::{switch, timings};
use crate::kernel::{event::PacketEvent, group::Number, served};

switch!("receive_wait");

/// Packets that wait.
#[map]
static WAITING: Array<u64> = Array::with_max_entries(1, 0);

/// A packet is in its socket's queue.
#[inline(always)]
pub fn begun(event: &PacketEvent) {
    if !enabled() {
        return;
    }
    let mix = waiting::mix(event.stamp);
    if let Some(place) = WAITING.get_ptr_mut(waiting::place(mix)) {
        // SAFETY: an entry of the map, which lives as long as the program; another CPU's packet may replace this one.
        unsafe { *place = waiting::entry(mix, event.now) };
    }
}

/// A packet of a group, or of whoever has the slot, was read. What is read in several parts has waited once, until the first of them.
#[inline(always)]
pub fn ended(event: &PacketEvent, transport: Transport, network: Network, slot: Slot, group: Option<Number>) {
    if !enabled() || !served::enqueued() {
        return;
    }
    let series = Series::Wait(transport, network);
    let mix = waiting::mix(event.stamp);
    let Some(place) = WAITING.get_ptr_mut(waiting::place(mix)) else { return };
    // SAFETY: as above.
    match waiting::since(unsafe { *place }, mix, event.now) {
        // The time in an entry has come round, or may have, where the packet is older than its bits can tell.
        Some(wait) if event.age() >> waiting::TIME == 0 => {
            // SAFETY: as above.
            unsafe { *place = 0 };
            timings::record_in(group, series, wait, event.weight, slot);
        }
        _ => timings::lost(series, PacketLoss::Unmatched, event.weight),
    }
}
