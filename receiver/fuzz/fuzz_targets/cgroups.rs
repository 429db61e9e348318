//! Parses any bytes as paths of cgroups, one per line: no panic, and a workload's cgroup belongs to that workload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undercurrent_host::cgroup::{CgroupPath, Identity, identify};

#[path = "../../host/src/cgroup/identity/invariants.rs"]
mod invariants;

fuzz_target!(|raw: &[u8]| {
    for line in raw.split(|byte| *byte == b'\n') {
        // In the fixtures, keys precede the paths.
        let start = line.iter().position(|byte| *byte == b'/').unwrap_or(0);
        invariants::check(&CgroupPath::new(&line[start..]));
    }
});
