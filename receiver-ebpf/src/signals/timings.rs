//! Where durations of packets are recorded: the node's, a workload's, or a group's.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    latency::{LatencyCells, Series},
    loss::PacketLoss,
    workload::Slot,
};

use super::{group_latency, workload_latency};
use crate::kernel::{
    cells::{self, BEYOND, Beyond, ByCpu, MMAPABLE},
    group::Number,
};

#[map]
static LATENCY: ByCpu<LatencyCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// Ages from here on (13 days) come from comparing different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// Adds a duration to a series of a group, or of whoever has the slot, as often as its weight says.
#[inline(always)]
pub fn record_in(group: Option<Number>, series: Series, nanoseconds: u64, weight: u64, slot: Slot) {
    let Some(group) = group else { return record(series, nanoseconds, weight, slot) };
    match plausible(nanoseconds) {
        Ok(nanoseconds) => group_latency::record(group, series, nanoseconds, weight),
        Err(loss) => lost(series, loss, weight),
    }
}

/// Adds a duration to a series of whoever has the slot, as often as its weight says.
#[inline(always)]
pub fn record(series: Series, nanoseconds: u64, weight: u64, slot: Slot) {
    if slot == Slot::NODE {
        // Every series has its place; an index would leave a call to the panic that the verifier refuses.
        let Some(cells) = cells::here(&LATENCY) else { return };
        // The compiler would leave a check in place that always holds, and the kernel refuses what ends in a panic.
        // SAFETY: every series has its histogram.
        let cell = unsafe { cells.histograms.get_unchecked_mut(series.index()) };
        if let Err(Beyond(nanoseconds)) = cells::record(cell, nanoseconds, weight) {
            match beyond(nanoseconds) {
                Ok(longest) => cells::record_any(cell, longest, weight),
                Err(loss) => count(cells, series, loss, weight),
            }
        }
        return;
    }
    match plausible(nanoseconds) {
        Ok(nanoseconds) => workload_latency::record(slot, series, nanoseconds, weight),
        Err(loss) => lost(series, loss, weight),
    }
}

/// Packets that are in no histogram of a series.
#[inline(always)]
pub fn lost(series: Series, reason: PacketLoss, packets: u64) {
    if let Some(cells) = cells::here(&LATENCY) {
        count(cells, series, reason, packets);
    }
}

#[inline(always)]
fn count(cells: &mut LatencyCells, series: Series, reason: PacketLoss, packets: u64) {
    // SAFETY: as above.
    unsafe { cells.lost.get_unchecked_mut(series.index())[reason as usize] += packets };
}

/// What to record of a duration, in a bucket that there is.
#[inline(always)]
pub fn plausible(nanoseconds: u64) -> Result<u64, PacketLoss> {
    if nanoseconds < BEYOND { Ok(nanoseconds) } else { beyond(nanoseconds) }
}

/// What to record of a duration that no bucket covers: the longest one that some bucket does, unless it is no duration at
/// all.
#[inline(always)]
fn beyond(nanoseconds: u64) -> Result<u64, PacketLoss> {
    if (nanoseconds as i64) < 0 {
        Err(PacketLoss::Negative)
    } else if nanoseconds >= IMPLAUSIBLE {
        Err(PacketLoss::TransmitStamp)
    } else {
        Ok(BEYOND - 1)
    }
}
