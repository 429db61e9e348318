//! The kernel's own counts for a program.

use serde::{Deserialize, Serialize};

/// The kernel's counts for one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Runs; the kernel counts them only while `kernel.bpf_stats_enabled` is set.
    pub count: u64,
    /// Duration of the runs in nanoseconds; counted only while `kernel.bpf_stats_enabled` is set.
    pub nanoseconds: u64,
    /// Skipped runs: the program (or any program of a kprobe, for a kprobe) was already running on the CPU.
    pub misses: u64,
}
