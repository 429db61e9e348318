//! `undercurrent.network.receive.duration`: how long a packet took from its receive timestamp to a layer.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    latency::{LatencyCells, Path},
    loss::PacketLoss,
    workload::{Slot, ownership},
};

use super::{switch, workload_latency};
use crate::kernel::{
    cells::{self, BEYOND, Beyond, ByCpu, MMAPABLE},
    event::PacketEvent,
    owner,
};

switch!("latency");

#[map]
static LATENCY: ByCpu<LatencyCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Ages from here on (13 days) come from comparing different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// A packet got to the end of a path. Whose it is, is asked only where somebody wants to know.
#[inline(always)]
pub fn reached(path: Path, event: impl FnOnce() -> Result<PacketEvent, PacketLoss>, slot: impl FnOnce() -> Slot) {
    if !enabled() {
        return;
    }
    let Some(cells) = cells::here(&LATENCY) else { return };
    match event() {
        Ok(PacketEvent { age }) => {
            if let Err(loss) = record(cells, path, age, slot) {
                lost(cells, path, loss);
            }
        }
        Err(loss) => lost(cells, path, loss),
    }
}

#[inline(always)]
fn record(cells: &mut LatencyCells, path: Path, age: u64, slot: impl FnOnce() -> Slot) -> Result<(), PacketLoss> {
    if owner::by() != ownership::OFF {
        let slot = slot();
        if slot != Slot::NODE {
            let nanoseconds = if age < BEYOND { age } else { beyond(age)? };
            workload_latency::record(slot, path, nanoseconds);
            return Ok(());
        }
    }
    let cell = &mut cells.histograms[path.index()];
    if let Err(Beyond(age)) = cells::record(cell, age) {
        cells::record_any(cell, beyond(age)?);
    }
    Ok(())
}

/// What to record of an age that no bucket covers: the longest duration that one does, unless it is no duration at all.
#[inline(always)]
fn beyond(age: u64) -> Result<u64, PacketLoss> {
    if (age as i64) < 0 {
        Err(PacketLoss::Negative)
    } else if age >= IMPLAUSIBLE {
        Err(PacketLoss::TransmitStamp)
    } else {
        Ok(BEYOND - 1)
    }
}

#[inline(always)]
fn lost(cells: &mut LatencyCells, path: Path, reason: PacketLoss) {
    cells.lost[path.index()][reason as usize] += 1;
}
