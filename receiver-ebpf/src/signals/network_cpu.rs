//! `undercurrent.network.cpu.time`: time between a network softirq's entry and its exit.

use undercurrent_ebpf::abi::softirq::SoftirqCell;

use super::switch;

switch!("network_cpu");

/// The softirq begins to run.
#[inline(always)]
pub fn entered(cell: &mut SoftirqCell, now: u64) {
    if enabled() {
        cell.running = now;
    }
}

/// The softirq ends. A run that began before the program was attached is not counted.
#[inline(always)]
pub fn exited(cell: &mut SoftirqCell, now: u64) {
    if enabled() && cell.running != 0 {
        cell.time += now.wrapping_sub(cell.running);
        cell.runs += 1;
        cell.running = 0;
    }
}
