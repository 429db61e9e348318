//! `undercurrent.network.receive.duration`: how long a packet took from its receive timestamp to a layer.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use undercurrent_ebpf::abi::{
    histogram::HistogramCell,
    latency::{CELLS, Layer, Network, Transport, cell},
    loss::{Loss, PER_CELL},
};

use super::switch;
use crate::kernel::{cells, event::PacketEvent};

switch!("latency");

#[map]
static LATENCY: PerCpuArray<HistogramCell> = PerCpuArray::with_max_entries(CELLS, 0);

#[map]
static LATENCY_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(CELLS * PER_CELL, 0);

/// Ages from here on (13 days) come from comparing different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// A packet reached a layer.
#[inline(always)]
pub fn reached(layer: Layer, transport: Transport, network: Network, event: &Result<PacketEvent, Loss>) {
    if !enabled() {
        return;
    }
    let cell = cell(layer, transport, network);
    match event {
        Ok(event) if event.age < cells::BEYOND => cells::record(&LATENCY, cell, event.age),
        Ok(event) => beyond(cell, event.age),
        Err(loss) => lost(cell, *loss),
    }
}

/// An age that no bucket's span covers: very long, or no duration.
#[inline(never)]
fn beyond(cell: u32, age: u64) {
    if age as i64 <= 0 {
        lost(cell, Loss::Negative);
    } else if age >= IMPLAUSIBLE {
        lost(cell, Loss::TransmitStamp);
    } else {
        cells::record(&LATENCY, cell, age.min(cells::BEYOND - 1));
    }
}

#[inline(always)]
fn lost(cell: u32, reason: Loss) {
    cells::count(&LATENCY_LOST, cell * PER_CELL + reason as u32);
}
