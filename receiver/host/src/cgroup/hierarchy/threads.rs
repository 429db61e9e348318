//! Run time of the threads in the root cgroup of version 2. The kernel keeps no exact CPU time for that cgroup.

use std::{fs, io, time::Duration};

use super::{Hierarchy, Version, processes::has_ended};

impl Hierarchy {
    /// Returns the id and the run time of each thread in the root cgroup of version 2. On most hosts these are kernel
    /// threads.
    ///
    /// `cgroup.threads` has the ids, and `/proc/TID/schedstat` has the run time (`sum_exec_runtime`). `cpu.stat` of the
    /// root cgroup is unsuitable, because the kernel samples it by timer ticks (`root_cgroup_cputime` in
    /// kernel/cgroup/rstat.c).
    ///
    /// # Errors
    /// On version 1; if the root cgroup or a thread cannot be read; if a thread is in another pid namespace; if the
    /// kernel counts no run times.
    pub fn root_threads(&self) -> io::Result<Vec<(u32, Duration)>> {
        if self.version != Version::V2 || self.partial().is_some() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let list = fs::read_to_string(self.mount_point().join("cgroup.threads"))?;
        let mut threads = Vec::new();
        for line in list.lines() {
            let invalid =
                || io::Error::other(format!("`{line}` in cgroup.threads is not a thread of this pid namespace"));
            let thread: u32 = line.parse().ok().filter(|thread| *thread != 0).ok_or_else(invalid)?;
            match fs::read_to_string(format!("/proc/{thread}/schedstat")) {
                Ok(text) => threads.push((thread, run_time(&text).ok_or_else(invalid)?)),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Kernels without CONFIG_SCHED_INFO write zeros.
        if threads.iter().all(|(_, time)| time.is_zero()) {
            return Err(io::Error::other("the kernel does not count the run time of threads (CONFIG_SCHED_INFO)"));
        }
        Ok(threads)
    }
}

/// Parses the first number of `/proc/TID/schedstat`, in nanoseconds.
fn run_time(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_time_is_the_first_number() {
        assert_eq!(run_time("2143651870 98410312 5190\n"), Some(Duration::from_nanos(2_143_651_870)));
        for mistake in ["", "\n", "-1 2 3\n", "cpu0 1 2\n"] {
            assert_eq!(run_time(mistake), None, "{mistake:?}");
        }
    }
}
