//! `undercurrent.network.cpu.time`: time between a network softirq's entry and its exit.

use undercurrent_ebpf::abi::softirq::SoftirqState;

use super::switch;

switch!("network_cpu");

/// The softirq begins to run.
#[inline(always)]
pub fn entered(state: &mut SoftirqState, now: u64) {
    if enabled() {
        state.running = now;
    }
}

/// The softirq ends. A run that began before the program was attached is not counted.
#[inline(always)]
pub fn exited(state: &mut SoftirqState, now: u64) {
    if enabled() && state.running != 0 {
        state.time += now.wrapping_sub(state.running);
        state.runs += 1;
        state.running = 0;
    }
}
