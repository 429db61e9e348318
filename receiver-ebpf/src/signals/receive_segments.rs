//! `undercurrent.network.receive.segments` and `undercurrent.network.receive.io`: the segments on the wire and the bytes of the packets
//! that enter their transport protocol.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    latency::{Layer, ReceivePoint},
    segments::{self, Count},
    workload::Slot,
};

use super::switch;
use crate::kernel::{
    cells::MMAPABLE,
    filter::Subject,
    shard::{Counters, SlotCounters},
};

switch!("receive_segments");

/// Counts by slot, shard and protocol; see [`segments`].
#[map]
static SEGMENTS: Counters<{ segments::WORDS }> = Counters::with_max_entries(1, MMAPABLE);

/// Counts the segments and bytes of a measured packet that represents `weight` packets.
#[inline(always)]
pub fn reached(point: ReceivePoint, packet: &impl Subject, weight: u64, slot: Slot) {
    if point.layer != Layer::Transport || !enabled() {
        return;
    }
    if let Some(transport) = point.transport
        && let Some(counters) = SlotCounters::of(&SEGMENTS, slot)
    {
        let add = |count: Count, amount: u32| {
            counters.add(segments::index(count, transport, point.version), u64::from(amount) * weight);
        };
        add(Count::Segments, packet.segments());
        add(Count::Bytes, packet.bytes(point.version));
    }
}
