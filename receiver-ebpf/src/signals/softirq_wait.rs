//! `undercurrent.softirq.wait.duration`: from the first raise of a network softirq to its run.
//!
//! The raise hook may interrupt the entry hook, so each word has one writer: a raise is new if it is later than the last
//! entry.

use undercurrent_ebpf::abi::softirq::{Softirq, SoftirqCells, SoftirqState};

use super::switch;
use crate::kernel::cells;

switch!("softirq_wait");

/// Records the first raise since the last run.
#[inline(always)]
pub fn raised(state: &mut SoftirqState, clock: impl FnOnce() -> u64) {
    if enabled() && state.raised <= state.entered {
        state.raised = clock();
    }
}

/// Records the wait of a softirq that begins to run.
#[inline(always)]
pub fn entered(cells: &mut SoftirqCells, softirq: Softirq, now: u64) {
    if !enabled() {
        return;
    }
    let state = &mut cells.state[softirq as usize];
    let raised = state.raised;
    if raised > state.entered {
        cells::record_any(&mut cells.wait[softirq as usize], now.wrapping_sub(raised), 1);
    } else {
        cells.unseen_raises[softirq as usize] += 1;
    }
    state.entered = now;
}
