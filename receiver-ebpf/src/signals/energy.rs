//! Time for which network softirqs interrupt the tasks of workloads. User space moves it to the receivers of the packets.

use super::{processor, switch};

switch!("energy");

/// Handles a network softirq of this length in nanoseconds. `is_idle` returns true if it interrupted the idle task.
#[inline(always)]
pub fn interrupted(nanoseconds: u64, is_idle: impl FnOnce() -> bool) {
    if enabled() && !is_idle() {
        processor::delay(nanoseconds);
    }
}
