//! The kernel's own counts for a program, from `/proc/self/fdinfo` (`bpf_prog_show_fdinfo`, Linux 5.12 and later).

use std::{fs, os::fd::AsRawFd};

use aya::programs::ProgramFd;

/// What the kernel counted for one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Runs; only counted while the kernel's statistics are on (`kernel.bpf_stats_enabled`).
    pub count: u64,
    /// Nanoseconds they took; only while the statistics are on.
    pub nanoseconds: u64,
    /// Runs that did not happen since the program was running on that CPU already.
    pub recursion_misses: u64,
}

/// Reads the counts of a program; `None` where the kernel does not tell.
#[must_use]
pub fn read(program: &ProgramFd) -> Option<Runs> {
    use std::os::fd::AsFd as _;
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    Some(parse(&fs::read_to_string(path).ok()?))
}

fn parse(text: &str) -> Runs {
    let mut runs = Runs::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let Ok(value) = value.trim().parse() else { continue };
        match key {
            "run_cnt" => runs.count = value,
            "run_time_ns" => runs.nanoseconds = value,
            "recursion_misses" => runs.recursion_misses = value,
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_the_kernel_prints() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nprog_jited:\t1\nprog_tag:\tda1f4b8e1d5c9a3b\nmemlock:\t4096\n\
                    prog_id:\t41\nrun_time_ns:\t812\nrun_cnt:\t9\nrecursion_misses:\t3\nverified_insns:\t87\n";
        assert_eq!(parse(text), Runs { count: 9, nanoseconds: 812, recursion_misses: 3 });
        assert_eq!(parse("run_cnt:\tmany\nrun_time_ns"), Runs::default());
    }
}
