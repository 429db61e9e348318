//! Time for which network softirqs interrupt the tasks of workloads. User space moves it to the receivers of the packets.

use super::{energy, network_cpu, processor, switch};

switch!("workload_cpu");

/// Handles a network softirq of this length in nanoseconds. `is_idle` returns true if it interrupted the idle task.
#[inline(always)]
pub fn interrupted(nanoseconds: u64, is_idle: impl FnOnce() -> bool) {
    let is_needed = enabled() || energy::enabled();
    if is_needed && network_cpu::divides() && !is_idle() {
        processor::delay(nanoseconds);
    }
}
