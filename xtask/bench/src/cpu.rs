//! CPU time of processes.

use std::time::Duration;

use procfs::process::Process;

/// Returns the CPU time of all threads of a process.
pub fn cpu_time(process: &Process) -> anyhow::Result<Duration> {
    let mut time = Duration::ZERO;
    for task in process.tasks()? {
        time += Duration::from_nanos(task?.schedstat()?.sum_exec_runtime);
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_cpu_time() {
        assert!(cpu_time(&Process::myself().unwrap()).unwrap() > Duration::ZERO);
    }
}
