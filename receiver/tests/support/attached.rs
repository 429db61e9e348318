//! Programs and links that the sidecar holds in the kernel.

use std::{collections::BTreeSet, fs, time::Duration};

use aya::programs::{loaded_links, loaded_programs};

use super::{processes::family, surroundings::wait_for};

/// Programs and links of a sidecar.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Ids of the programs.
    pub programs: BTreeSet<u32>,
    /// Ids of the links.
    pub links: BTreeSet<u32>,
}

impl Attached {
    /// Adds programs and links.
    pub fn extend(&mut self, others: Self) {
        self.programs.extend(others.programs);
        self.links.extend(others.links);
    }
}

/// Returns the programs and links that a process and its descendants have open.
pub fn attached(pid: u32) -> Attached {
    let mut attached = Attached::default();
    family(pid).into_iter().for_each(|process| attached.extend(held(process)));
    attached
}

/// Returns the programs and links that one process has open.
pub fn held(process: u32) -> Attached {
    let mut held = Attached::default();
    let descriptors = fs::read_dir(format!("/proc/{process}/fdinfo")).into_iter().flatten().flatten();
    // The process may close a descriptor meanwhile.
    for text in descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok()) {
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        held.programs.extend(number("prog_id:"));
        held.links.extend(number("link_id:"));
    }
    held
}

/// Returns the programs and links among these that still exist in the kernel.
pub fn left(of: &Attached) -> Attached {
    let programs = loaded_programs().filter_map(|program| Some(program.ok()?.id()));
    let links = loaded_links().filter_map(|link| Some(link.ok()?.id()));
    Attached {
        programs: programs.filter(|id| of.programs.contains(id)).collect(),
        links: links.filter(|id| of.links.contains(id)).collect(),
    }
}

/// Waits until the kernel has removed all of them.
pub fn assert_nothing_left(of: &Attached, limit: Duration) {
    wait_for("the kernel to let programs and links go", limit, || (left(of) == Attached::default()).then_some(()));
}
