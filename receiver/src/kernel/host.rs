//! Facts about the running kernel that decide what can be measured, and that `doctor` shows.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::object::Ownership;
use crate::cgroup::{Hierarchy, Mounts};

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The running kernel, as far as measuring depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// `uname -r`.
    pub release: String,
    /// Whether the kernel carries its types.
    pub btf: bool,
    /// The lockdown mode; absent where the kernel has no lockdown.
    pub lockdown: Option<String>,
    /// Capabilities that this process lacks for what it is to do.
    pub missing_capabilities: Vec<String>,
    /// Which cgroup hierarchies are mounted.
    pub cgroup: Cgroup,
    /// Where the root of the cgroup v2 hierarchy is mounted; absent where this process sees only a part, or nothing, of it.
    pub cgroup_root: Option<PathBuf>,
    /// The cgroups that say whose a task is; absent where none are mounted.
    pub hierarchy: Option<Hierarchy>,
    /// What the kernel reads its clocks from, which is most of an event's cost: `tsc` is fast.
    pub clocksource: Option<String>,
    /// Possible CPUs.
    pub cpus: usize,
    /// Whether softirqs run in preemptible threads.
    pub preempt_rt: bool,
    /// Interfaces whose NAPI polls run in threads and not in softirqs.
    pub threaded_napi: Vec<String>,
}

/// Which cgroup hierarchies a host uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cgroup {
    /// None is mounted.
    None,
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Version 1 with a version 2 hierarchy beside it.
    Hybrid,
}

impl Cgroup {
    const fn of(mounts: &Mounts) -> Self {
        match (mounts.v1, mounts.v2.is_some()) {
            (false, false) => Self::None,
            (true, false) => Self::V1,
            (false, true) => Self::V2,
            (true, true) => Self::Hybrid,
        }
    }

    /// The word that people use.
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
    /// Looks at the running kernel. What cannot be read counts as not there.
    #[must_use]
    pub fn probe(missing_capabilities: Vec<String>) -> Self {
        let mounts = Mounts::read().unwrap_or_default();
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|modes| selected(&modes)),
            missing_capabilities,
            cgroup: Cgroup::of(&mounts),
            cgroup_root: mounts.v2_root().map(Path::to_owned),
            hierarchy: Hierarchy::choose(mounts),
            clocksource: fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
            cpus: aya::util::nr_cpus().unwrap_or(1),
            preempt_rt: fs::read_to_string("/sys/kernel/realtime").is_ok_and(|flag| flag.trim() == "1")
                || rustix::system::uname().version().to_string_lossy().contains("PREEMPT_RT"),
            threaded_napi: threaded(Path::new("/sys/class/net")).unwrap_or_default(),
        }
    }
}

impl Host {
    /// How programs find whose a task is here.
    #[must_use]
    pub fn ownership(&self) -> Option<Ownership> {
        self.hierarchy.as_ref()?.ownership()
    }
}

/// The word in brackets: `none [integrity] confidentiality`.
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
    fn the_lockdown_mode_is_the_selected_one() {
        assert_eq!(selected("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(selected("[none] integrity confidentiality\n").as_deref(), Some("none"));
        assert_eq!(selected(""), None);
    }
}
