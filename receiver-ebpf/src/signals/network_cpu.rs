//! `undercurrent.network.cpu.time`: time between entry and exit of a network softirq.

use undercurrent_ebpf::abi::softirq::SoftirqState;

use super::switch;

switch!("network_cpu");

/// Records the entry of a softirq.
#[inline(always)]
pub fn entered(state: &mut SoftirqState, now: u64) {
    if enabled() {
        state.running = now;
    }
}

/// Adds the time since the entry of a softirq. A run that began before the program was attached does not count.
#[inline(always)]
pub fn exited(state: &mut SoftirqState, now: u64) {
    if enabled() && state.running != 0 {
        state.time += now.wrapping_sub(state.running);
        state.runs += 1;
        state.running = 0;
    }
}
