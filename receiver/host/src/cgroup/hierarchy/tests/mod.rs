//! Tests of hierarchies: parsed mounts, temporary folders and the running kernel.

mod kernel;
mod mounts;
mod walk;

use std::path::Path;

use super::*;

/// Returns a hierarchy mount backed by a folder.
fn whole(point: &Path) -> Mount {
    Mount { point: point.to_owned(), view: View::Whole }
}

fn v2(point: &Path) -> Hierarchy {
    Hierarchy::choose(Mounts { v2: Some(whole(point)), ..Mounts::default() }).unwrap()
}

fn paths(scan: &Scan) -> Vec<String> {
    scan.cgroups.iter().map(|cgroup| cgroup.path.to_string()).collect()
}
