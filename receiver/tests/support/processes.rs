//! Processes of the sidecar: the worker and its descendants.

/// Returns the process and its descendants.
pub fn family(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = procfs::process::all_processes()
        .expect("processes")
        // A process may end meanwhile.
        .filter_map(|process| process.ok()?.stat().ok())
        .map(|stat| (stat.pid.cast_unsigned(), stat.ppid.cast_unsigned()))
        .collect();
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        next += 1;
    }
    family
}
