//! `undercurrent.network.receive.duration`: how long a packet took from its receive timestamp to a layer.

use undercurrent_ebpf::abi::{
    latency::{Path, Series},
    loss::PacketLoss,
    workload::Slot,
};

use super::{switch, timings};
use crate::kernel::{event::PacketEvent, group::Number};

switch!("latency");

/// A packet of a group, or of whoever has the slot, got to the end of a path.
#[inline(always)]
pub fn reached(path: Path, event: &PacketEvent, slot: Slot, group: Option<Number>) {
    if !enabled() {
        return;
    }
    if event.blocked {
        timings::lost(Series::Receive(path), PacketLoss::HeadOfLine, event.weight);
    } else {
        timings::record_in(group, Series::Receive(path), event.age(), event.weight, slot);
    }
}

/// Packets whose latency is not known got there.
#[inline(always)]
pub fn lost(path: Path, reason: PacketLoss, count: u64) {
    if enabled() {
        timings::lost(Series::Receive(path), reason, count);
    }
}
