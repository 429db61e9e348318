//! `undercurrent.network.receive.segments`: the segments on the wire of the packets that enter their transport protocol.

use aya_ebpf::{macros::map, maps::Array};
use undercurrent_ebpf::abi::{
    latency::{Layer, ReceivePoint},
    segments,
    workload::Slot,
};

use super::switch;
use crate::kernel::{cells::MMAPABLE, filter::Subject, shard};

switch!("receive_segments");

/// Segments by slot, shard and protocol; see [`segments`].
#[map]
static SEGMENTS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Counts the segments of a measured packet that represents `weight` packets.
#[inline(always)]
pub fn reached(point: ReceivePoint, packet: &impl Subject, weight: u64, slot: Slot) {
    if point.layer != Layer::Transport || !enabled() {
        return;
    }
    if let Some(transport) = point.transport {
        let word = shard::here(slot.0.into()) * segments::WORDS as u32 + segments::index(transport, point.version);
        shard::add(&SEGMENTS, word, u64::from(packet.segments()) * weight);
    }
}
