//! Any bytes as paths of cgroups, one a line: no panic, and a workload's own cgroup belongs to that workload.
//!
//! `cargo +nightly fuzz run cgroups corpus/cgroups ../fixtures/cgroups`, in `receiver/fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent::workloads::{CgroupPath, Identity, identify};

#[path = "../../src/workloads/identity/invariants.rs"]
mod invariants;

fuzz_target!(|raw: &[u8]| {
    for line in raw.split(|byte| *byte == b'\n') {
        // The fixtures have their keys before the paths.
        let start = line.iter().position(|byte| *byte == b'/').unwrap_or(0);
        invariants::check(&CgroupPath::new(&line[start..]));
    }
});
