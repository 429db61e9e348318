//! `undercurrent.softirq.wait.duration`: from the first raise of a network softirq to its run.
//!
//! The raise hook may interrupt the entry hook, so each word has one writer: a raise is new if it is later than the last
//! entry.

use undercurrent_ebpf::abi::{
    cost::exact,
    softirq::{Softirq, SoftirqCells, SoftirqState},
};

use super::{network_cpu, switch};
use crate::kernel::cells;

switch!("softirq_wait");

/// Records the first raise since the last run.
#[inline(always)]
pub fn raised(state: &mut SoftirqState, clock: impl FnOnce() -> u64) {
    if enabled() && state.raised <= state.entered {
        state.raised = clock();
    }
}

/// Handles the start of a run. The wait is recorded now, or at the run's end if the time of runs is measured: it must not contain
/// the recording.
#[inline(always)]
pub fn entered(cells: &mut SoftirqCells, softirq: Softirq, now: u64) {
    if !enabled() {
        return;
    }
    // No program at the exit recorded the last wait, for example because the kernel refuses it.
    record(cells, softirq);
    let state = &mut cells.state[softirq as usize];
    match state.wait_until(now) {
        Some(wait) => state.waited = wait.max(1),
        None => cells.unseen_raises[softirq as usize] += 1,
    }
    state.entered = now;
    if network_cpu::measures() == exact::NONE {
        record(cells, softirq);
    }
}

/// Handles the end of a run.
#[inline(always)]
pub fn exited(cells: &mut SoftirqCells, softirq: Softirq) {
    if enabled() {
        record(cells, softirq);
    }
}

/// Records the wait of the last run that has not been recorded.
#[inline(always)]
fn record(cells: &mut SoftirqCells, softirq: Softirq) {
    let waited = core::mem::take(&mut cells.state[softirq as usize].waited);
    if waited != 0 {
        cells::record_any(&mut cells.wait[softirq as usize], waited, 1);
    }
}
