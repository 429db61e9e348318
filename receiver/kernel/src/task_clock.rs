//! The times that the kernel excludes from the run time of tasks, and so from the CPU time of cgroups.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::btf::Btf;

/// The times that `rq_clock_task` excludes (`update_rq_clock_task` in kernel/sched/core.c); they depend on the kernel
/// configuration. On x86 a kernel with an unstable TSC does not exclude interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClock {
    /// True if the clock excludes time that the hypervisor took (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    pub excludes_steal: bool,
    /// True if the clock excludes hard and soft interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`).
    pub excludes_interrupts: bool,
}

impl TaskClock {
    /// Detects the exclusions from members of `struct rq` that depend on these options (kernel/sched/sched.h, 5.10 to
    /// 6.18).
    pub(super) fn of(types: &Btf<'_>) -> Self {
        let has = |member| types.member("rq", member).is_ok();
        Self { excludes_steal: has("prev_steal_time_rq"), excludes_interrupts: has("prev_irq_time") }
    }
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{btf, cgroup::testing::skip};

    #[test]
    fn detected_exclusions_match_the_kernel_configuration() {
        let Ok(output) = Command::new("zcat").arg("/proc/config.gz").output() else {
            return skip("task clock: no zcat");
        };
        if output.stdout.is_empty() {
            return skip("task clock: this kernel has no /proc/config.gz (CONFIG_IKCONFIG_PROC)");
        }
        let config = String::from_utf8(output.stdout).unwrap();
        let has = |option: &str| config.lines().any(|line| line.strip_prefix(option) == Some("=y"));
        let raw = btf::read(btf::VMLINUX).unwrap();
        let clock = TaskClock::of(&Btf::parse(&raw).unwrap());
        assert_eq!(clock.excludes_steal, has("CONFIG_PARAVIRT_TIME_ACCOUNTING"), "{clock}");
        assert_eq!(clock.excludes_interrupts, has("CONFIG_IRQ_TIME_ACCOUNTING"), "{clock}");
    }
}
