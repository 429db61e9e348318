//! The source of the node's CPU time, for `doctor`.

use crate::{
    kernel::{Kernel, task_clock::TaskClock},
    workloads::{Hierarchy, Version},
};

/// Returns the sources of the node's CPU time on this host, and which times they include. `None` without cgroups.
pub fn source(kernel: &Kernel) -> Option<String> {
    let hierarchy = kernel.host().hierarchy.as_ref()?;
    Some(describe(&lower_bound(hierarchy), kernel.task_clock()))
}

fn describe(lower_bound: &str, clock: TaskClock) -> String {
    format!("elapsed minus idle time, with interrupts; with stolen time at least {lower_bound}, {clock}")
}

/// The names of the files that [`super::tasks::Tasks`] reads here.
fn lower_bound(hierarchy: &Hierarchy) -> String {
    if hierarchy.partial().is_some() {
        return "the timer ticks of /proc/stat, since only a part of the cgroups is visible".to_owned();
    }
    match hierarchy.version() {
        Version::V1 => "the run time of all tasks (cpuacct.usage of the root cgroup)".to_owned(),
        Version::V2 => match hierarchy.root_threads() {
            Ok(_) => {
                "the run time of all tasks (cpu.stat of cgroups, schedstat of threads in the root cgroup)".to_owned()
            }
            Err(error) => format!("cpu.stat of cgroups and the timer ticks of /proc/stat ({error})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::hierarchies;

    #[test]
    fn each_hierarchy_has_its_files() {
        for hierarchy in hierarchies() {
            let file = match hierarchy.version() {
                Version::V1 => "cpuacct.usage",
                Version::V2 => "cpu.stat",
            };
            assert!(lower_bound(&hierarchy).contains(file), "{}", lower_bound(&hierarchy));
        }
    }

    #[test]
    fn the_times_that_are_included_are_named() {
        let text =
            |excludes_steal, excludes_interrupts| describe("that", TaskClock { excludes_steal, excludes_interrupts });
        assert!(
            text(true, false)
                .ends_with("at least that, without stolen time; interrupts count for the interrupted task")
        );
        assert!(text(false, true).contains("no CONFIG_PARAVIRT_TIME_ACCOUNTING"));
        assert!(text(false, true).contains("interrupts count for the node"));
    }
}
