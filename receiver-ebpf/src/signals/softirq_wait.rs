//! `undercurrent.softirq.wait.duration`: from a network softirq's first raise to its run.
//!
//! The raise hook may interrupt the entry hook, so each word has one writer: a raise counts as new when it is later than
//! the last entry.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use undercurrent_ebpf::abi::{
    histogram::HistogramCell,
    softirq::{Softirq, SoftirqCell},
};

use super::switch;
use crate::kernel::cells;

switch!("softirq_wait");

#[map]
static SOFTIRQ_WAIT: PerCpuArray<HistogramCell> = PerCpuArray::with_max_entries(2, 0);

#[map]
static SOFTIRQ_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// The softirq is marked to run. Only the first raise since the last run begins a wait.
#[inline(always)]
pub fn raised(cell: &mut SoftirqCell, clock: impl FnOnce() -> u64) {
    if enabled() && cell.raised <= cell.entered {
        cell.raised = clock();
    }
}

/// The softirq begins to run.
#[inline(always)]
pub fn entered(softirq: Softirq, cell: &mut SoftirqCell, now: u64) {
    if !enabled() {
        return;
    }
    let raised = cell.raised;
    if raised > cell.entered {
        cells::record(&SOFTIRQ_WAIT, softirq as u32, now.wrapping_sub(raised).min(cells::BEYOND - 1));
    } else {
        cells::count(&SOFTIRQ_LOST, softirq as u32);
    }
    cell.entered = now;
}
