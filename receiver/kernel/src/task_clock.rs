//! The times that the kernel excludes from the run time of tasks, and so from the CPU time of cgroups.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The times that `rq_clock_task` excludes (`update_rq_clock_task` in kernel/sched/core.c); they depend on the kernel
/// configuration. On x86 a kernel with an unstable TSC does not exclude interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClock {
    /// True if the clock excludes time that the hypervisor took (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    pub excludes_steal: bool,
    /// True if the clock excludes hard and soft interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`).
    pub excludes_interrupts: bool,
}

impl fmt::Display for TaskClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steal = if self.excludes_steal {
            "without stolen time"
        } else {
            "with the stolen time during which a task ran (no CONFIG_PARAVIRT_TIME_ACCOUNTING)"
        };
        let interrupts = if self.excludes_interrupts {
            "interrupts count for the node (CONFIG_IRQ_TIME_ACCOUNTING)"
        } else {
            "interrupts count for the interrupted task"
        };
        write!(formatter, "{steal}; {interrupts}")
    }
}
