//! The privileges that each part gives up, and those that it keeps.

use std::{collections::HashSet, io};

use caps::{CapSet, Capability, CapsHashSet};
use serde::Serialize;

use super::process::is_single_threaded;

mod files;
mod system_calls;

pub use files::FileAccess;

/// A part of the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Loads, attaches and detaches programs, and passes descriptors.
    Loader,
    /// Reads `/proc`, cgroups and runtime sockets of others.
    Reader,
    /// Everything else: signals, export, table.
    Worker,
}

/// The user and group that the worker becomes, where the sidecar runs as root: one of the numbers that systemd's
/// documentation lists as unused, since processes of a shared user such as `nobody` may end each other.
pub const USER: u32 = 65_529;

/// The system calls that a part may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemCalls {
    /// A list (seccomp).
    Filtered,
    /// Every one.
    All,
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
    /// Its system calls.
    pub system_calls: SystemCalls,
    /// Its access to files.
    pub files: FileAccess,
}

/// A privilege could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up {what}: {source}")]
pub struct ConfineError {
    what: &'static str,
    #[source]
    source: io::Error,
}

fn confined<T>(
    what: &'static str,
    outcome: Result<T, impl Into<Box<dyn std::error::Error + Send + Sync>>>,
) -> Result<T, ConfineError> {
    outcome.map_err(|error| ConfineError { what, source: io::Error::other(error) })
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 3] = [Self::Loader, Self::Reader, Self::Worker];

    /// The part's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Reader => "reader",
            Self::Worker => "worker",
        }
    }

    /// The capabilities that the part uses, as far as the sidecar was given them.
    #[must_use]
    pub fn capabilities(self, given: &CapsHashSet) -> CapsHashSet {
        use Capability::{
            CAP_BPF, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_CHROOT,
            CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_SYSLOG,
        };
        let mut used: CapsHashSet = match self {
            Self::Loader => HashSet::from([
                CAP_BPF,
                CAP_PERFMON,
                CAP_NET_ADMIN,
                CAP_SYS_RESOURCE,
                CAP_SYSLOG,
                CAP_SYS_CHROOT,
                CAP_DAC_READ_SEARCH,
            ]),
            Self::Reader => HashSet::from([CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE]),
            Self::Worker => HashSet::new(),
        };
        // It includes the others, where it was given in their place.
        if self == Self::Loader && ![CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN].iter().all(|one| given.contains(one)) {
            used.insert(CAP_SYS_ADMIN);
        }
        used.intersection(given).copied().collect()
    }

    /// The restrictions that the part is under if this process starts it.
    ///
    /// # Errors
    /// If this process cannot read its own capabilities.
    pub fn confinement(self) -> Result<Confinement, ConfineError> {
        let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
        let mut kept: Vec<Capability> = self.capabilities(&given).into_iter().collect();
        kept.sort_by_key(Capability::index);
        let is_worker = self == Self::Worker;
        let own = rustix::process::geteuid();
        Ok(Confinement {
            part: self,
            user: if is_worker && may_change_user(&given) { USER } else { own.as_raw() },
            capabilities: kept.iter().map(ToString::to_string).collect(),
            system_calls: if is_worker { SystemCalls::Filtered } else { SystemCalls::All },
            files: if is_worker { FileAccess::supported() } else { FileAccess::UserOnly },
        })
    }

    /// Gives up everything that the part does not need, for good. The process must have one thread.
    ///
    /// # Errors
    /// If the kernel refuses it, or another thread runs, which would keep its privileges. A kernel without Landlock is no
    /// error.
    pub fn confine(self) -> Result<(), ConfineError> {
        if !is_single_threaded() {
            return confined("privileges", Err(io::Error::other("this process has several threads")));
        }
        let given = confined("capabilities", caps::read(None, CapSet::Permitted))?;
        let effective = self.capabilities(&given);
        // The loader starts new readers, which need their capabilities then.
        let permitted = match self {
            Self::Loader => effective.union(&Self::Reader.capabilities(&given)).copied().collect(),
            Self::Reader | Self::Worker => effective.clone(),
        };
        limit_bounding_set(&permitted)?;
        if self == Self::Worker {
            // rustix keeps the kernel's parameters, whose file only root may read once the user has changed.
            rustix::param::page_size();
            change_user(&given)?;
        }
        limit_capabilities(&effective, &permitted)?;
        confined("new privileges", rustix::thread::set_no_new_privs(true))?;
        if self == Self::Worker {
            confined("files", files::restrict())?;
            confined("system calls", system_calls::restrict())?;
        }
        Ok(())
    }
}

/// Programs that a process executes cannot gain what is not in its bounding set.
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
    // Kernels and containers without ambient capabilities have none to give up.
    let _ = caps::clear(None, CapSet::Ambient);
    confined("capabilities", caps::set(None, CapSet::Effective, effective))?;
    confined("capabilities", caps::set(None, CapSet::Inheritable, &HashSet::new()))?;
    confined("capabilities", caps::set(None, CapSet::Permitted, permitted))
}

fn may_change_user(given: &CapsHashSet) -> bool {
    rustix::process::geteuid().is_root()
        && [Capability::CAP_SETUID, Capability::CAP_SETGID].iter().all(|one| given.contains(one))
}

/// Becomes a user without privileges, where the process is root and may.
fn change_user(given: &CapsHashSet) -> Result<(), ConfineError> {
    if !may_change_user(given) {
        return Ok(());
    }
    let done = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: no pointer is read: the list has no groups.
    confined("groups", done(unsafe { libc::setgroups(0, std::ptr::null()) }))?;
    // SAFETY: the call takes numbers alone.
    confined("the group", done(unsafe { libc::setresgid(USER, USER, USER) }))?;
    // SAFETY: the call takes numbers alone.
    confined("the user", done(unsafe { libc::setresuid(USER, USER, USER) }))
}

#[cfg(test)]
mod tests {
    use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE};

    use super::*;

    #[test]
    fn no_part_has_what_it_was_not_given_and_the_worker_has_nothing() {
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
    fn the_widest_capability_is_kept_only_in_the_place_of_the_narrow_ones() {
        let loader = |given: &[Capability]| Part::Loader.capabilities(&given.iter().copied().collect());
        assert!(!loader(&[CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN]).contains(&CAP_SYS_ADMIN));
        assert!(loader(&[CAP_SYS_ADMIN]).contains(&CAP_SYS_ADMIN));
    }
}
