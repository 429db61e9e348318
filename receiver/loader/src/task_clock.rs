//! The times that the kernel excludes from the run time of tasks, by its BTF.

use undercurrent_kernel::task_clock::TaskClock;

use super::btf::Btf;

/// Returns the excluded times.
pub(super) fn task_clock(types: &Btf<'_>) -> TaskClock {
    let has = |member| types.member("rq", member).is_ok();
    TaskClock { excludes_steal: has("prev_steal_time_rq"), excludes_interrupts: has("prev_irq_time") }
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
        let clock = task_clock(&Btf::parse(&raw).unwrap());
        assert_eq!(clock.excludes_steal, has("CONFIG_PARAVIRT_TIME_ACCOUNTING"), "{clock}");
        assert_eq!(clock.excludes_interrupts, has("CONFIG_IRQ_TIME_ACCOUNTING"), "{clock}");
    }
}
