//! `undercurrent.network.receive.duration`: the time from a packet's receive timestamp to a layer.

use undercurrent_ebpf::abi::{latency::ReceivePoint, loss::PacketLoss, series::Series, workload::Slot};

use super::{switch, timings};
use crate::kernel::{event::PacketEvent, group::Number};

switch!("latency");

/// Records a packet at a receive point, for its group or else for the slot.
#[inline(always)]
pub fn reached(point: ReceivePoint, event: &PacketEvent, slot: Slot, group: Option<Number>) {
    if enabled() {
        timings::record_in(group, Series::Receive(point), event.age(), event.weight, slot);
    }
}

/// Records the nanoseconds of a forwarded packet on this host.
#[inline(always)]
pub fn passed_host(point: ReceivePoint, nanoseconds: u64, weight: u64, slot: Slot, group: Option<Number>) {
    if enabled() {
        timings::record_in(group, Series::Receive(point), nanoseconds, weight, slot);
    }
}

/// Counts packets at a receive point that have no latency.
#[inline(always)]
pub fn lost(point: ReceivePoint, reason: PacketLoss, count: u64) {
    if enabled() {
        timings::lost(Series::Receive(point), reason, count);
    }
}
