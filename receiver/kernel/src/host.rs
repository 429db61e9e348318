//! Facts about the running kernel that limit measurements. `doctor` shows them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    cgroup::{Hierarchy, Mounts, Ownership},
    sysfs::Meters,
};

const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Properties of the running kernel that affect measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub release: String,
    /// True if the kernel has BTF.
    pub btf: bool,
    /// The lockdown mode; `None` if the kernel has no lockdown.
    pub lockdown: Option<String>,
    /// Required capabilities that this process lacks.
    pub missing_capabilities: Vec<String>,
    /// The mounted cgroup hierarchies.
    pub cgroup: Cgroup,
    /// The mount point of the cgroup v2 root; `None` if this process sees none, or only a part of the hierarchy.
    pub cgroup_root: Option<PathBuf>,
    /// The cgroup hierarchy that identifies a task's workload; `None` if none is mounted.
    pub hierarchy: Option<Hierarchy>,
    /// The clock source. Reading the clock is most of an event's cost; `tsc` is fast.
    pub clocksource: Option<String>,
    /// The number of indices of possible CPUs: one more than the highest id, because ids can have gaps.
    pub cpus: usize,
    /// True if softirqs run in preemptible threads (PREEMPT_RT).
    pub preempt_rt: bool,
    /// Interfaces that poll NAPI in threads instead of softirqs.
    pub threaded_napi: Vec<String>,
    /// The power meters. They are not read by [`Host::probe`], which does not know their tree.
    pub meters: Meters,
}

/// The cgroup hierarchies of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cgroup {
    /// None is mounted.
    None,
    /// Only version 1.
    V1,
    /// Only version 2.
    V2,
    /// Version 1 and version 2.
    Hybrid,
}

impl Cgroup {
    const fn from_mounts(mounts: &Mounts) -> Self {
        match (mounts.v1, mounts.v2.is_some()) {
            (false, false) => Self::None,
            (true, false) => Self::V1,
            (false, true) => Self::V2,
            (true, true) => Self::Hybrid,
        }
    }

    /// Returns the name in `doctor`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

impl Host {
    /// Reads the properties of the running kernel. An unreadable property counts as missing.
    #[must_use]
    pub fn probe(missing_capabilities: Vec<String>) -> Self {
        let mounts = Mounts::read().unwrap_or_default();
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|modes| selected(&modes)),
            missing_capabilities,
            cgroup: Cgroup::from_mounts(&mounts),
            cgroup_root: mounts.v2_root().map(Path::to_owned),
            hierarchy: Hierarchy::choose(mounts),
            clocksource: fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
            cpus: fs::read_to_string(POSSIBLE_CPUS).ok().and_then(|ranges| indices(&ranges)).unwrap_or(1),
            preempt_rt: fs::read_to_string("/sys/kernel/realtime").is_ok_and(|flag| flag.trim() == "1")
                || rustix::system::uname().version().to_string_lossy().contains("PREEMPT_RT"),
            threaded_napi: threaded(Path::new("/sys/class/net")).unwrap_or_default(),
            meters: Meters::default(),
        }
    }
}

impl Host {
    /// Returns the method by which programs attribute a task to a workload.
    #[must_use]
    pub fn ownership(&self) -> Option<Ownership> {
        self.hierarchy.as_ref()?.ownership()
    }
}

/// Returns one more than the highest id in a list of CPUs, as `0-3,8`.
fn indices(ranges: &str) -> Option<usize> {
    let last = |range: &str| range.rsplit('-').next()?.parse::<usize>().ok();
    ranges.trim().split(',').map(last).max()??.checked_add(1)
}

/// Returns the word in brackets: `none [integrity] confidentiality`.
fn selected(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

fn threaded(interfaces: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<_> = fs::read_dir(interfaces)?
        .flatten()
        .filter(|interface| fs::read_to_string(interface.path().join("threaded")).is_ok_and(|flag| flag.trim() == "1"))
        .map(|interface| interface.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_an_index_each_if_their_ids_have_gaps() {
        assert_eq!(["0", "0-3\n", "0-1,4-5", "0,7"].map(indices), [Some(1), Some(4), Some(6), Some(8)]);
        assert_eq!(["", "a", "0-x"].map(indices), [None; 3]);
    }

    #[test]
    fn lockdown_mode_is_the_word_in_brackets() {
        assert_eq!(selected("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(selected("[none] integrity confidentiality\n").as_deref(), Some("none"));
        assert_eq!(selected(""), None);
    }
}
