//! The privileges that each part drops and keeps.

use std::{collections::HashSet, ffi::CStr, io};

use caps::{CapSet, Capability, CapsHashSet};
use serde::Serialize;

use super::process::is_single_threaded;

mod files;
mod system_calls;
mod users;

pub use files::{FileAccess, Reach};
pub use users::USER;

/// A part of the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Starts the loader and the readers.
    Supervisor,
    /// Loads, attaches and detaches eBPF programs, and passes descriptors of maps.
    Loader,
    /// Reads `/proc`, cgroups and runtime sockets of other users.
    Reader,
    /// Opens files of outputs again.
    Writer,
    /// Aggregates, exports and displays the signals.
    Worker,
}

/// The restrictions of a part on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// The part.
    pub part: Part,
    /// The user id that the part runs as.
    pub user: u32,
    /// Its effective capabilities.
    pub capabilities: Vec<String>,
    /// The allowed file access.
    pub files: FileAccess,
}

/// A privilege cannot be dropped.
#[derive(Debug, thiserror::Error)]
#[error("cannot drop {privilege}: {source}")]
pub struct ConfineError {
    privilege: &'static str,
    #[source]
    source: io::Error,
}

fn confined<T>(
    privilege: &'static str,
    outcome: Result<T, impl Into<Box<dyn std::error::Error + Send + Sync>>>,
) -> Result<T, ConfineError> {
    outcome.map_err(|error| ConfineError { privilege, source: io::Error::other(error) })
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 5] = [Self::Supervisor, Self::Loader, Self::Reader, Self::Writer, Self::Worker];

    /// Returns the name of the part.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Loader => "loader",
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Worker => "worker",
        }
    }

    /// Returns the name of the part's process. That of the sidecar's worker is the name of the program.
    #[must_use]
    pub const fn process_name(self) -> &'static CStr {
        match self {
            Self::Supervisor => c"uc-supervisor",
            Self::Loader => c"uc-loader",
            Self::Reader => c"uc-reader",
            Self::Writer => c"uc-writer",
            Self::Worker => c"uc-worker",
        }
    }

    /// Returns the given capabilities that the part uses.
    #[must_use]
    pub fn capabilities(self, given: &CapsHashSet) -> CapsHashSet {
        use Capability::{
            CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_PERFMON, CAP_SETPCAP, CAP_SYS_ADMIN,
            CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_SYSLOG,
        };
        let mut used: CapsHashSet = match self {
            Self::Loader => {
                HashSet::from([CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_RESOURCE, CAP_SYSLOG, CAP_DAC_READ_SEARCH])
            }
            Self::Reader => HashSet::from([CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE]),
            // For folders that another user than root owns.
            Self::Writer => HashSet::from([CAP_DAC_OVERRIDE]),
            // For the bounding sets of the parts that it starts.
            Self::Supervisor => HashSet::from([CAP_SETPCAP]),
            Self::Worker => HashSet::new(),
        };
        // `CAP_SYS_ADMIN` is kept only if it was given in the place of the narrower capabilities.
        if self == Self::Loader && ![CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN].iter().all(|one| given.contains(one)) {
            used.insert(CAP_SYS_ADMIN);
        }
        used.intersection(given).copied().collect()
    }

    /// Returns the given capabilities that the part holds but does not enable, except for single system calls.
    /// `perf_restricted` is true if kprobes need `CAP_SYS_ADMIN`.
    fn reserve(self, given: &CapsHashSet, perf_restricted: bool) -> CapsHashSet {
        match self {
            // The parts that it starts need them.
            Self::Supervisor => {
                let parts = [Self::Loader, Self::Reader, Self::Writer].into_iter();
                parts.flat_map(|part| part.handed(given, perf_restricted)).collect()
            }
            Self::Loader if perf_restricted && given.contains(&Capability::CAP_SYS_ADMIN) => {
                HashSet::from([Capability::CAP_SYS_ADMIN])
            }
            _ => HashSet::new(),
        }
    }

    /// Returns the given capabilities that the part holds.
    fn permitted(self, given: &CapsHashSet, perf_restricted: bool) -> CapsHashSet {
        self.capabilities(given).union(&self.reserve(given, perf_restricted)).copied().collect()
    }

    /// Returns the given capabilities that the supervisor hands over to the part, which drops those that change its user.
    fn handed(self, given: &CapsHashSet, perf_restricted: bool) -> CapsHashSet {
        let changes = users::CHANGES.into_iter().filter(|capability| given.contains(capability));
        self.permitted(given, perf_restricted).into_iter().chain(changes).collect()
    }

    /// Returns the restrictions of the part if this process starts it.
    ///
    /// # Errors
    /// If this process cannot read its own capabilities.
    pub fn confinement(self) -> Result<Confinement, ConfineError> {
        let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
        let mut kept: Vec<Capability> = self.capabilities(&given).into_iter().collect();
        kept.sort_by_key(Capability::index);
        Ok(Confinement {
            part: self,
            user: self.user(&given).unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            capabilities: kept.iter().map(ToString::to_string).collect(),
            files: match self {
                Self::Worker | Self::Writer => FileAccess::supported(),
                Self::Supervisor | Self::Loader | Self::Reader => FileAccess::UserOnly,
            },
        })
    }

    /// Permanently drops every privilege that the part does not need for `reach`. The process must be single-threaded.
    ///
    /// # Errors
    /// If the kernel rejects a restriction, or if the process has several threads, because other threads would keep
    /// their privileges. A kernel without Landlock is not an error.
    pub fn confine(self, reach: &Reach) -> Result<(), ConfineError> {
        if !is_single_threaded() {
            return confined("privileges", Err(io::Error::other("this process has several threads")));
        }
        let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
        let effective = self.capabilities(&given);
        let permitted = self.permitted(&given, restricts_perf_events());
        limit_bounding_set(&permitted)?;
        // rustix caches the kernel parameters. Only root can read their file, so it must be read before the change of the user.
        rustix::param::page_size();
        if let Some(user) = self.user(&given) {
            users::change(user)?;
            if self == Self::Worker {
                confined("the number of threads", users::limit_threads())?;
            }
        }
        limit_capabilities(&effective, &permitted)?;
        confined("new privileges", rustix::thread::set_no_new_privs(true))?;
        match self {
            Self::Worker => drop(confined("files", files::restrict(reach))?),
            Self::Writer => confined("files", files::restrict_to_outputs(&reach.outputs))?,
            Self::Supervisor | Self::Loader | Self::Reader => {}
        }
        confined("system calls", system_calls::restrict(self, reach))
    }

    /// Limits this process to the capabilities that the part holds, so that a program that it executes has these and no others. The
    /// program then [confines](Self::confine) itself.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn hand_over(self) -> Result<(), ConfineError> {
        let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
        let (restricted, set) =
            (restricts_perf_events(), |set, to: &_| confined("capabilities", caps::set(None, set, to)));
        let handed = self.handed(&given, restricted);
        // Before the bounding set shrinks: a capability outside of it cannot become inheritable.
        set(CapSet::Inheritable, &handed)?;
        limit_bounding_set(&self.permitted(&given, restricted))?;
        set(CapSet::Effective, &handed)?;
        set(CapSet::Permitted, &handed)?;
        // Another user than root needs ambient capabilities. Root keeps its capabilities also where the kernel refuses ambient ones.
        let _ = caps::set(None, CapSet::Ambient, &handed);
        confined("new privileges", rustix::thread::set_no_new_privs(true))
    }
}

/// Drops the capabilities and system calls that the supervisor needs for the loader and the writer. It then starts readers, and no other
/// part.
///
/// # Errors
/// If the kernel refuses.
pub fn limit_supervisor_to_readers(reach: &Reach) -> Result<(), ConfineError> {
    let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
    let effective = Part::Supervisor.capabilities(&given);
    let permitted = Part::Reader.handed(&given, false).union(&effective).copied().collect();
    limit_bounding_set(&permitted)?;
    limit_capabilities(&effective, &permitted)?;
    confined("system calls", system_calls::restrict_supervisor_to_readers(reach))
}

/// Drops the loader's capabilities.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn freeze_loader() -> Result<(), ConfineError> {
    limit_capabilities(&HashSet::new(), &HashSet::new())
}

/// Returns true if kprobes need `CAP_SYS_ADMIN`. Debian's and Ubuntu's kernels require it for perf events if
/// `perf_event_paranoid` is above 2, and that is their default.
fn restricts_perf_events() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    level.is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level > 2))
}

/// Reduces the bounding set. An executed program cannot gain capabilities outside of it.
fn limit_bounding_set(keep: &CapsHashSet) -> Result<(), ConfineError> {
    if !caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
        return Ok(());
    }
    let bounding = confined("the bounding set", caps::read(None, CapSet::Bounding))?;
    for capability in bounding.difference(keep) {
        confined("the bounding set", caps::drop(None, CapSet::Bounding, *capability))?;
    }
    Ok(())
}

fn limit_capabilities(effective: &CapsHashSet, permitted: &CapsHashSet) -> Result<(), ConfineError> {
    // Kernels and containers without ambient capabilities reject the call; they have none to drop.
    let _ = caps::clear(None, CapSet::Ambient);
    confined("capabilities", caps::set(None, CapSet::Effective, effective))?;
    confined("capabilities", caps::set(None, CapSet::Inheritable, &HashSet::new()))?;
    confined("capabilities", caps::set(None, CapSet::Permitted, permitted))
}

#[cfg(test)]
mod tests {
    use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE};

    use super::*;

    #[test]
    fn parts_keep_only_given_capabilities_and_the_worker_keeps_none() {
        for given in [caps::all(), HashSet::from([CAP_BPF, CAP_PERFMON]), HashSet::new()] {
            for part in Part::ALL {
                assert!(part.capabilities(&given).is_subset(&given), "{part:?}");
            }
            assert!(Part::Worker.capabilities(&given).is_empty());
        }
        assert!(!Part::Loader.capabilities(&caps::all()).contains(&CAP_SYS_PTRACE));
        assert!(!Part::Reader.capabilities(&caps::all()).contains(&CAP_BPF));
    }

    #[test]
    fn sys_admin_is_kept_only_in_the_place_of_narrower_capabilities() {
        let loader = |given: &[Capability]| Part::Loader.capabilities(&given.iter().copied().collect());
        assert!(!loader(&[CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN]).contains(&CAP_SYS_ADMIN));
        assert!(loader(&[CAP_SYS_ADMIN]).contains(&CAP_SYS_ADMIN));
    }

    #[test]
    fn the_loader_reserves_sys_admin_only_where_perf_events_need_it() {
        let all = caps::all();
        assert!(Part::Loader.reserve(&all, true).contains(&CAP_SYS_ADMIN));
        assert!(!Part::Loader.reserve(&all, false).contains(&CAP_SYS_ADMIN));
        assert!(!Part::Loader.reserve(&HashSet::from([CAP_BPF]), true).contains(&CAP_SYS_ADMIN));
        for part in [Part::Reader, Part::Worker] {
            assert!(part.reserve(&all, true).is_empty(), "{part:?}");
        }
    }

    #[test]
    fn only_the_supervisor_holds_the_capabilities_of_several_parts() {
        let all = caps::all();
        let [loader, reader, supervisor] =
            [Part::Loader, Part::Reader, Part::Supervisor].map(|part| part.permitted(&all, true));
        assert!(loader.is_disjoint(&HashSet::from([CAP_SYS_PTRACE, Capability::CAP_DAC_OVERRIDE])));
        assert!(reader.is_disjoint(&HashSet::from([CAP_BPF, CAP_SYS_ADMIN])));
        assert!(loader.is_subset(&supervisor) && reader.is_subset(&supervisor));
        let changes = HashSet::from(users::CHANGES);
        assert!(changes.is_subset(&supervisor) && changes.is_disjoint(&loader) && changes.is_disjoint(&reader));
        assert!(changes.is_subset(&Part::Reader.handed(&supervisor, false)));
        // A part finds the same capabilities in those that the supervisor hands over.
        assert_eq!(Part::Loader.permitted(&loader, true), loader);
        assert_eq!(Part::Loader.permitted(&supervisor, true), loader);
    }
}
