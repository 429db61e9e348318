//! Capabilities of this process, and the missing capabilities of tasks.

use std::fmt;

use caps::{CapSet, Capability, CapsHashSet};

use crate::namespaces::Namespace;

/// A task that requires capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Load programs for tracing and create their maps.
    LoadTracing,
    /// Attach programs to a cgroup's packets (`cgroup_skb`).
    AttachCgroup,
    /// Raise the limit of locked memory, to which kernels before 5.11 charge maps and programs.
    RaiseMemoryLock,
    /// Read kernel symbols with their addresses.
    ReadSymbols,
    /// Inspect processes of other users: network namespaces, and the host's files from a container.
    InspectProcesses,
    /// Read files that are readable by their owner only: environments of processes, and power meters.
    ReadProtectedFiles,
    /// Run the worker as another user than root.
    ChangeUser,
}

impl Task {
    /// Every task; those that the sidecar requires come first.
    pub const ALL: [Self; 7] = [
        Self::LoadTracing,
        Self::AttachCgroup,
        Self::RaiseMemoryLock,
        Self::ReadSymbols,
        Self::InspectProcesses,
        Self::ReadProtectedFiles,
        Self::ChangeUser,
    ];

    /// Returns the purpose of the task, for a sentence after "to".
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::LoadTracing => "load tracing programs",
            Self::AttachCgroup => "attach programs to the packets of a cgroup",
            Self::RaiseMemoryLock => "raise the limit of locked memory",
            Self::ReadSymbols => "read the addresses of kernel symbols",
            Self::InspectProcesses => "inspect processes of other users",
            Self::ReadProtectedFiles => "read environments of processes and power meters",
            Self::ChangeUser => "run the worker as another user than root",
        }
    }

    /// Returns the measurements that are missing without the task's capabilities.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::LoadTracing => "nothing is measured",
            Self::AttachCgroup => "no layer `transport` on kernels without fentry and kprobes",
            Self::RaiseMemoryLock => "kernels before 5.11 may refuse the maps",
            Self::ReadSymbols => "no signal `network_functions`",
            Self::InspectProcesses => {
                "packets in network namespaces may count for the node, and containers may have no names"
            }
            Self::ReadProtectedFiles => "no `service.name` from environments, and no power meters of the kind `rapl`",
            Self::ChangeUser => "the sidecar does not start, unless `separation.root_worker` is true",
        }
    }

    /// Returns alternative sets of capabilities, the narrowest first. All capabilities of one set are sufficient.
    #[must_use]
    pub const fn alternatives(self) -> &'static [&'static [Capability]] {
        use Capability::{
            CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_PERFMON, CAP_SETGID, CAP_SETUID,
            CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_SYSLOG,
        };
        match self {
            Self::LoadTracing => &[&[CAP_BPF, CAP_PERFMON], &[CAP_SYS_ADMIN]],
            // CAP_SYS_ADMIN alone is sufficient from Linux 6.9 on. Earlier kernels refuse to attach and report the
            // reason. Distributions backport, so the kernel's version is no proof.
            Self::AttachCgroup => &[&[CAP_BPF, CAP_NET_ADMIN], &[CAP_SYS_ADMIN]],
            Self::RaiseMemoryLock => &[&[CAP_SYS_RESOURCE]],
            Self::ReadSymbols => &[&[CAP_SYSLOG]],
            Self::InspectProcesses => &[&[CAP_SYS_PTRACE]],
            Self::ReadProtectedFiles => &[&[CAP_DAC_READ_SEARCH], &[CAP_DAC_OVERRIDE]],
            Self::ChangeUser => &[&[CAP_SETUID, CAP_SETGID]],
        }
    }
}

/// The capabilities of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// True if the effective user is root. A container's root may lack capabilities.
    pub root: bool,
    /// True if this process is in the initial user namespace. The kernel checks capabilities for BPF programs, perf events
    /// and other users' files there.
    pub in_initial_namespace: bool,
    /// The effective capabilities.
    pub effective: CapsHashSet,
}

/// The capabilities of this process cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the capabilities of this process: {0}")]
pub struct ReadError(#[from] caps::errors::CapsError);

impl Privileges {
    /// Returns the privileges of the calling thread.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn current() -> Result<Self, ReadError> {
        let effective = caps::read(None, CapSet::Effective)?;
        let root = rustix::process::geteuid().is_root();
        Ok(Self { root, in_initial_namespace: Namespace::User.is_initial(), effective })
    }

    /// Returns the missing capabilities of a task, or `None` if it has all. Another user than root changes to no other user.
    #[must_use]
    pub fn lack(&self, task: Task) -> Option<Lack> {
        if task == Task::ChangeUser && !self.root {
            return None;
        }
        let has = |capability: &Capability| self.in_initial_namespace && self.effective.contains(capability);
        let alternatives = task.alternatives();
        if alternatives.iter().any(|set| set.iter().all(has)) {
            return None;
        }
        let missing = alternatives.first()?.iter().copied().filter(|capability| !has(capability)).collect();
        Some(Lack { task, missing })
    }

    /// Returns the missing capabilities of each task.
    #[must_use]
    pub fn lacks(&self, tasks: &[Task]) -> Vec<Lack> {
        tasks.iter().filter_map(|task| self.lack(*task)).collect()
    }

    /// Checks that this process has the capabilities for all of these tasks.
    ///
    /// # Errors
    /// If capabilities are missing. The message has their names and the way to grant them.
    pub fn require(&self, tasks: &[Task]) -> Result<(), Unprivileged> {
        match self.lacks(tasks) {
            lacks if lacks.is_empty() => Ok(()),
            lacks if self.in_initial_namespace => Err(Unprivileged::Lacks { root: self.root, lacks }),
            _ => Err(Unprivileged::Namespace),
        }
    }

    /// Returns the way to grant missing capabilities.
    #[must_use]
    pub fn grant(&self, lacks: &[Lack]) -> String {
        if self.in_initial_namespace { grant(lacks) } else { Unprivileged::Namespace.to_string() }
    }
}

/// The missing capabilities of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The task.
    pub task: Task,
    /// The missing capabilities of the narrowest alternative; never empty.
    pub missing: Vec<Capability>,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", names(&self.missing, " and "))?;
        let others: Vec<String> = self.task.alternatives().iter().skip(1).map(|set| names(set, " and ")).collect();
        if !others.is_empty() {
            write!(f, " (or {})", others.join(", or "))?;
        }
        write!(f, " to {}", self.task.purpose())
    }
}

/// Required capabilities are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprivileged {
    /// This process lacks capabilities.
    #[error(
        "{}lacking {}: {}{}",
        if *root { "" } else { "not root, and " },
        lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        if *root { "" } else { "run as root, or " },
        grant(lacks)
    )]
    Lacks {
        /// True if the effective user is root.
        root: bool,
        /// The missing capabilities of each task.
        lacks: Vec<Lack>,
    },
    /// The capabilities are those of a user namespace.
    #[error(
        "this process is in a user namespace, and the kernel refuses eBPF programs there to root too: run it in the \
         host's user namespace (Kubernetes: without `hostUsers: false`; Docker: `--userns host`; Podman: as root)"
    )]
    Namespace,
}

/// Returns the way to grant the missing capabilities, in the syntax of each manager.
fn grant(lacks: &[Lack]) -> String {
    let mut missing: Vec<Capability> = lacks.iter().flat_map(|lack| lack.missing.iter().copied()).collect();
    missing.sort_by_key(Capability::index);
    missing.dedup();
    let full = names(&missing, " ");
    let short = |separator: &str| full.replace("CAP_", "").replace(' ', separator);
    format!(
        "grant {full} (systemd: `AmbientCapabilities={full}`; Docker: `--cap-add {}`; Kubernetes: \
         `securityContext.capabilities.add: [{}]`)",
        short(" --cap-add "),
        short(", ")
    )
}

fn names(capabilities: &[Capability], separator: &str) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// Runs an action with a permitted capability of this thread enabled. Without the permission it only runs the action.
pub fn with<T>(capability: Capability, action: impl FnOnce() -> T) -> T {
    let is_enabled = caps::has_cap(None, CapSet::Effective, capability).unwrap_or(true);
    let enabled = !is_enabled && caps::raise(None, CapSet::Effective, capability).is_ok();
    let result = action();
    if enabled && let Err(error) = caps::drop(None, CapSet::Effective, capability) {
        tracing::error!("cannot disable {capability} again: {error}");
    }
    result
}

#[cfg(test)]
mod tests {
    use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN};

    use super::*;

    fn privileges(effective: &[Capability]) -> Privileges {
        Privileges { root: false, in_initial_namespace: true, effective: effective.iter().copied().collect() }
    }

    #[test]
    fn missing_capabilities_are_listed_with_their_tasks() {
        let lacks = privileges(&[]).lacks(&Task::ALL);
        insta::assert_snapshot!(lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), @"
        CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) to load tracing programs
        CAP_BPF and CAP_NET_ADMIN (or CAP_SYS_ADMIN) to attach programs to the packets of a cgroup
        CAP_SYS_RESOURCE to raise the limit of locked memory
        CAP_SYSLOG to read the addresses of kernel symbols
        CAP_SYS_PTRACE to inspect processes of other users
        CAP_DAC_READ_SEARCH (or CAP_DAC_OVERRIDE) to read environments of processes and power meters
        ");
    }

    #[test]
    fn one_complete_alternative_is_sufficient() {
        assert_eq!(privileges(&[CAP_BPF, CAP_PERFMON]).lack(Task::LoadTracing), None);
        assert_eq!(privileges(&[CAP_SYS_ADMIN]).lacks(&[Task::LoadTracing, Task::AttachCgroup]), []);
        assert_eq!(privileges(&[CAP_BPF, CAP_NET_ADMIN]).lack(Task::AttachCgroup), None);
        let lack = privileges(&[CAP_BPF]).lack(Task::LoadTracing).expect("a lack");
        assert_eq!(lack.missing, [CAP_PERFMON]);
        assert_eq!(privileges(&[CAP_NET_ADMIN]).lack(Task::AttachCgroup).map(|lack| lack.missing), Some(vec![CAP_BPF]));
    }

    #[test]
    fn only_root_must_be_able_to_change_its_user() {
        let lack = |root| Privileges { root, ..privileges(&[CAP_BPF]) }.lack(Task::ChangeUser);
        assert_eq!(lack(true).map(|lack| lack.missing.len()), Some(2));
        assert_eq!(lack(false), None);
    }

    #[test]
    fn errors_have_the_capabilities_to_grant() {
        let tasks = [Task::LoadTracing, Task::AttachCgroup];
        let refusal = |root: bool, effective: &[Capability]| {
            let privileges = Privileges { root, ..privileges(effective) };
            privileges.require(&tasks).expect_err("refused").to_string()
        };
        insta::assert_snapshot!([refusal(false, &[]), refusal(true, &[CAP_BPF, CAP_PERFMON])].join("\n"), @"
        not root, and lacking CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) to load tracing programs; CAP_BPF and CAP_NET_ADMIN (or CAP_SYS_ADMIN) to attach programs to the packets of a cgroup: run as root, or grant CAP_NET_ADMIN CAP_PERFMON CAP_BPF (systemd: `AmbientCapabilities=CAP_NET_ADMIN CAP_PERFMON CAP_BPF`; Docker: `--cap-add NET_ADMIN --cap-add PERFMON --cap-add BPF`; Kubernetes: `securityContext.capabilities.add: [NET_ADMIN, PERFMON, BPF]`)
        lacking CAP_NET_ADMIN (or CAP_SYS_ADMIN) to attach programs to the packets of a cgroup: grant CAP_NET_ADMIN (systemd: `AmbientCapabilities=CAP_NET_ADMIN`; Docker: `--cap-add NET_ADMIN`; Kubernetes: `securityContext.capabilities.add: [NET_ADMIN]`)
        ");
        assert_eq!(privileges(&[CAP_SYS_ADMIN]).require(&tasks), Ok(()));
    }

    #[test]
    fn capabilities_of_a_user_namespace_are_none() {
        let nested = Privileges { root: true, in_initial_namespace: false, effective: caps::all() };
        assert_eq!(nested.lacks(&Task::ALL).len(), Task::ALL.len());
        let refusal = nested.require(&[Task::LoadTracing]).expect_err("refused").to_string();
        assert!(refusal.contains("user namespace") && refusal.contains("hostUsers"), "{refusal}");
    }

    #[test]
    fn current_privileges_come_from_the_kernel() {
        let dropped = std::thread::spawn(|| {
            // Capabilities belong to a thread.
            caps::clear(None, CapSet::Effective).expect("capabilities dropped");
            Privileges::current().expect("privileges")
        });
        assert!(dropped.join().expect("no panic").effective.is_empty());
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a mask");
        let mask = u64::from_str_radix(mask.trim(), 16).expect("hexadecimal");
        let effective = Privileges::current().expect("privileges").effective;
        assert!(
            caps::all().iter().all(|capability| effective.contains(capability) == (mask & capability.bitmask() != 0))
        );
    }
}
