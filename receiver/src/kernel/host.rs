//! Facts about the running kernel that decide what can be measured, and that `doctor` shows.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use procfs::process::Process;
use serde::Serialize;

use super::object::Ownership;

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
    /// The hierarchy that says whose a task is: that of the cpu controller where version 1 has it, else version 2.
    pub ownership: Option<Ownership>,
    /// Where the cgroup v2 hierarchy is mounted.
    pub cgroup_root: Option<PathBuf>,
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
        let (cgroup, cgroup_root) = cgroups(
            Process::myself().and_then(|process| process.mountinfo()).map(|mounts| mounts.0).unwrap_or_default(),
        );
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|modes| selected(&modes)),
            missing_capabilities,
            cgroup,
            ownership: ownership(cgroup),
            cgroup_root,
            clocksource: fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
            cpus: aya::util::nr_cpus().unwrap_or(1),
            preempt_rt: fs::read_to_string("/sys/kernel/realtime").is_ok_and(|flag| flag.trim() == "1")
                || rustix::system::uname().version().to_string_lossy().contains("PREEMPT_RT"),
            threaded_napi: threaded(Path::new("/sys/class/net")).unwrap_or_default(),
        }
    }
}

/// The word in brackets: `none [integrity] confidentiality`.
fn selected(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

fn cgroups(mounts: Vec<procfs::process::MountInfo>) -> (Cgroup, Option<PathBuf>) {
    let v1 = mounts.iter().any(|mount| mount.fs_type == "cgroup");
    let root = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2").map(|mount| mount.mount_point);
    let version = match (v1, &root) {
        (false, None) => Cgroup::None,
        (true, None) => Cgroup::V1,
        (false, Some(_)) => Cgroup::V2,
        (true, Some(_)) => Cgroup::Hybrid,
    };
    (version, root)
}

fn ownership(cgroup: Cgroup) -> Option<Ownership> {
    let controllers = procfs::cgroups().map(|controllers| controllers.0).unwrap_or_default();
    let cpu = controllers.iter().find(|controller| controller.name == "cpu" && controller.hierarchy != 0);
    match (cgroup, cpu) {
        (Cgroup::None, _) => None,
        (Cgroup::V1 | Cgroup::Hybrid, Some(cpu)) => i32::try_from(cpu.hierarchy).ok().map(Ownership::Cpu),
        (Cgroup::V1, None) => None,
        (Cgroup::V2 | Cgroup::Hybrid, _) => Some(Ownership::Unified),
    }
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
