//! `undercurrent.network.cpu.time`: time between entry and exit of a network softirq, divided over the workloads that receive its
//! packets.
//!
//! Each measured packet ends a part of the run that began at the previous packet. The part is charged to the packet's slot; a part
//! between two delivered packets is shared by both, since it contains the end of the first and the start of the second. The parts of
//! consecutive packets for one slot are charged together. If packets
//! are sampled, time of runs without a measured packet is charged to the next measured packet on that CPU. So the charges add up
//! to the time of the softirq, and no clock is read for packets that are not measured.

use aya_ebpf::macros::map;
use undercurrent_ebpf::abi::{
    cost::{self, CostKind, exact},
    softirq::{Division, Softirq, SoftirqCells, SoftirqState},
    workload::Slot,
};

use crate::kernel::{
    cells::{self, ByCpu, MMAPABLE},
    clock,
    constant::constants,
    sample,
    shard::{Counters, SlotCounters},
};

constants! {
    /// One of [`exact`]; [`exact::NONE`] also if the signal is disabled.
    EXACT = "network_cpu.exact";
    /// 1 if CPU time is measured exactly and attribution is on.
    DIVIDES = "network_cpu.divides";
}

/// State and totals of the network softirqs.
#[map]
pub static SOFTIRQ: ByCpu<SoftirqCells> = ByCpu::with_max_entries(1, MMAPABLE);

/// CPU time by slot, shard and [`CostKind`], nanoseconds.
#[map]
static NETWORK_CPU: Counters<{ cost::WORDS }> = Counters::with_max_entries(1, MMAPABLE);

/// Returns what is measured exactly, one of [`exact`]; a constant to the verifier.
#[inline(always)]
pub fn measures() -> u32 {
    EXACT.get()
}

/// Returns true if CPU time is divided over workloads.
#[inline(always)]
pub fn divides() -> bool {
    DIVIDES.get() != 0
}

/// Adds CPU time of one or more kinds to a workload.
#[inline(always)]
pub fn charge<const N: usize>(slot: Slot, times: [(CostKind, u64); N]) {
    if let Some(counters) = SlotCounters::of(&NETWORK_CPU, slot) {
        for (kind, nanoseconds) in times {
            counters.add(kind as usize, nanoseconds);
        }
    }
}

/// Adds time of the receive softirq to a workload.
#[inline(always)]
fn charge_receive(slot: Slot, nanoseconds: u64) {
    charge(slot, [(CostKind::ReceiveSoftirq, nanoseconds)]);
}

/// Records the entry of a softirq.
#[inline(always)]
pub fn entered(cells: &mut SoftirqCells, softirq: Softirq, now: u64) {
    if measures() != exact::NONE {
        cells.state[softirq as usize].running = now;
        if divides() && softirq as u32 == Softirq::Receive as u32 {
            cells.division = cells.division.started(now);
        }
    }
}

/// Adds the time since the entry of a softirq. A run that began before the program was attached does not count.
#[inline(always)]
pub fn exited(cells: &mut SoftirqCells, softirq: Softirq, now: u64) {
    if measures() != exact::NONE
        && count(&mut cells.state[softirq as usize], now)
        && divides()
        && softirq as u32 == Softirq::Receive as u32
    {
        ended(&mut cells.division, now);
    }
}

/// Adds a run to the totals; false if it began before the program was attached.
#[inline(always)]
fn count(state: &mut SoftirqState, now: u64) -> bool {
    if state.running == 0 {
        return false;
    }
    state.time += now.wrapping_sub(state.running);
    state.runs += 1;
    state.running = 0;
    true
}

/// Charges the end of a run to its last packet, or to the node if no packet was delivered.
#[inline(always)]
fn ended(division: &mut Division, now: u64) {
    let rest = now.wrapping_sub(division.since);
    division.since = 0;
    if let Some(last) = division.last_slot() {
        charge_receive(last, division.owed + rest);
    } else if sample::share() == 1 {
        charge_receive(Slot::NODE, rest);
    } else {
        division.pending += rest;
    }
}

/// Returns the division of the receive softirq that runs on this CPU; `None` outside of such a run.
#[inline(always)]
fn running() -> Option<&'static mut Division> {
    if !divides() {
        return None;
    }
    let cells = cells::here(&SOFTIRQ)?;
    if cells.division.since == 0 { None } else { Some(&mut cells.division) }
}

/// Handles a measured packet for a socket at a time. The time until the next packet belongs to both.
#[inline(always)]
pub fn delivered(slot: Slot, now: u64) {
    if let Some(division) = running() {
        let mut owed = now.wrapping_sub(division.since) + division.pending;
        match division.last_slot() {
            None => {}
            Some(last) if last.0 == slot.0 => owed += division.owed,
            Some(last) => {
                let shared = owed / 2;
                charge_receive(last, division.owed + shared);
                owed -= shared;
            }
        }
        *division = Division { since: now, last: u64::from(slot.0) + 1, owed, pending: 0 };
    }
}

/// Handles a packet whose processing ends here: it is dropped or forwarded.
#[inline(always)]
pub fn finished(slot: impl FnOnce() -> Slot) {
    if let Some(division) = running()
        && sample::chosen()
    {
        let now = clock::monotonic();
        let time = now.wrapping_sub(division.since) + division.pending;
        if let Some(last) = division.last_slot() {
            charge_receive(last, division.owed);
        }
        charge_receive(slot(), time);
        *division = Division { pending: 0, ..division.started(now) };
    }
}
