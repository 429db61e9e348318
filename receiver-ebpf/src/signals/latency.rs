//! `undercurrent.network.receive.duration`: how long a packet took from its receive timestamp to a layer.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    latency::{LatencyCells, Path},
    loss::PacketLoss,
};

use super::switch;
use crate::kernel::{
    cells::{self, Beyond, ByCpu, MMAPABLE},
    event::PacketEvent,
};

switch!("latency");

#[map]
static LATENCY: ByCpu<LatencyCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Ages from here on (13 days) come from comparing different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// This CPU's cells; `None` while the signal is off.
#[inline(always)]
pub fn here() -> Option<&'static mut LatencyCells> {
    if enabled() { cells::here(&LATENCY) } else { None }
}

/// A packet got to the end of a path.
#[inline(always)]
pub fn reached(cells: &mut LatencyCells, path: Path, event: &Result<PacketEvent, PacketLoss>) {
    match event {
        Ok(event) => {
            if let Err(Beyond(age)) = cells::record(&mut cells.histograms[path.index()], event.age) {
                beyond(cells, path, age);
            }
        }
        Err(loss) => lost(cells, path, *loss),
    }
}

/// An age that no bucket covers: very long, or no duration.
#[inline(always)]
fn beyond(cells: &mut LatencyCells, path: Path, age: u64) {
    if (age as i64) < 0 {
        lost(cells, path, PacketLoss::Negative);
    } else if age >= IMPLAUSIBLE {
        lost(cells, path, PacketLoss::TransmitStamp);
    } else {
        cells::record_any(&mut cells.histograms[path.index()], age);
    }
}

#[inline(always)]
fn lost(cells: &mut LatencyCells, path: Path, reason: PacketLoss) {
    cells.lost[path.index()][reason as usize] += 1;
}
