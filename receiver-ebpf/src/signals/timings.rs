//! Records durations of packets for the node, a workload or a group.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    loss::{PACKET_LOSSES, PacketLoss},
    series::{DurationCells, Series},
    workload::Slot,
};

use super::{group_latency, workload_latency};
use crate::kernel::{
    cells::{self, BEYOND, Beyond, ByCpu, MMAPABLE},
    group::Number,
    shared,
    workarounds::{checked_copy, element},
};

#[map]
static LATENCY: ByCpu<DurationCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// The first implausible duration, 13 days: it comes from the comparison of different clocks.
const IMPLAUSIBLE: u64 = 1 << 50;

/// Adds a duration to a series of a group, or else of a slot, `weight` times.
#[inline(always)]
pub fn record_in(group: Option<Number>, series: Series, nanoseconds: u64, weight: u64, slot: Slot) {
    let Some(group) = group else { return record(series, nanoseconds, weight, slot) };
    match plausible(nanoseconds) {
        Ok(nanoseconds) => group_latency::record(group, series, nanoseconds, weight),
        Err(loss) => lost(series, loss, weight),
    }
}

/// Adds a duration to a series of a slot `weight` times.
#[inline(always)]
pub fn record(series: Series, nanoseconds: u64, weight: u64, slot: Slot) {
    if slot == Slot::NODE {
        let Some(cells) = cells::here(&LATENCY) else { return };
        // SAFETY: there is a histogram for each series.
        let cell = unsafe { element(&mut cells.histograms, series.index()) };
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

/// Counts packets of a series that are in no histogram.
#[inline(always)]
pub fn lost(series: Series, reason: PacketLoss, packets: u64) {
    if let Some(cells) = cells::here(&LATENCY) {
        count(cells, series, reason, packets);
    }
}

#[inline(always)]
fn count(cells: &mut DurationCells, series: Series, reason: PacketLoss, packets: u64) {
    // The compiler combines the code of several reasons.
    let reason = checked_copy(reason as u64);
    if reason < PACKET_LOSSES as u64 {
        // SAFETY: there are counters for each series and reason.
        let lost = unsafe { element(element(&mut cells.lost, series.index()), reason as usize) };
        // Several programs count the losses of a series, and one may interrupt another.
        shared::add(lost, packets);
    }
}

/// Returns a duration that a bucket covers, or the reason for its loss.
#[inline(always)]
pub fn plausible(nanoseconds: u64) -> Result<u64, PacketLoss> {
    if nanoseconds < BEYOND { Ok(nanoseconds) } else { beyond(nanoseconds) }
}

/// Returns the longest duration that a bucket covers for a longer but plausible duration, or the reason for its loss.
#[inline(always)]
fn beyond(nanoseconds: u64) -> Result<u64, PacketLoss> {
    if (nanoseconds as i64) < 0 {
        Err(PacketLoss::Negative)
    } else if nanoseconds >= IMPLAUSIBLE {
        Err(PacketLoss::TransmitTimestamp)
    } else {
        Ok(BEYOND - 1)
    }
}
