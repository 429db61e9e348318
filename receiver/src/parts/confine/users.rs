//! The users that the parts change to if the sidecar runs as root.

use std::io;

use caps::{Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use super::{ConfineError, Part, confined};

/// The user and group id of the worker if the sidecar runs as root. systemd's documentation lists this id and the next ones as unused. A
/// shared user such as `nobody` is unsafe: processes of one user may kill each other.
pub const USER: u32 = 65_529;
/// The user and group id of the loader.
pub(super) const LOADER: u32 = 65_528;
/// The user and group id of the reader.
pub(super) const READER: u32 = 65_527;

/// The capabilities that change the user and the groups of a process.
pub(super) const CHANGES: [Capability; 2] = [Capability::CAP_SETUID, Capability::CAP_SETGID];

/// The maximum number of threads of all workers on a machine, which have one user.
const THREADS: u64 = 512;

impl Part {
    /// Returns the user that the part changes to; `None` if it keeps the user of the sidecar.
    ///
    /// Root owns the files and sockets that the parts access. The loader and the reader therefore stay root if a capability is missing that
    /// gives another user this access. The writer stays root because the files that it creates belong to root, and the supervisor because it
    /// executes the program, which may be executable for root only.
    pub(super) fn user(self, given: &CapsHashSet) -> Option<u32> {
        use Capability::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE};
        let (user, needed): (u32, &[Capability]) = match self {
            Self::Worker => (USER, &[]),
            Self::Loader => (LOADER, &[CAP_DAC_READ_SEARCH]),
            Self::Reader => (READER, &[CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE]),
            Self::Writer | Self::Supervisor => return None,
        };
        let has_all = needed.iter().chain(&CHANGES).all(|capability| given.contains(capability));
        (geteuid().is_root() && has_all).then_some(user)
    }
}

/// Changes to an unprivileged user without supplementary groups. The process keeps its permitted capabilities; the effective ones are lost.
pub(super) fn change(user: u32) -> Result<(), ConfineError> {
    let done = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    confined("the capabilities of root", rustix::thread::set_keep_capabilities(true))?;
    // SAFETY: a list of zero groups is valid with a null pointer, because the kernel reads no element.
    confined("groups", done(unsafe { libc::setgroups(0, std::ptr::null()) }))?;
    // SAFETY: the call has only integer arguments.
    confined("the group", done(unsafe { libc::setresgid(user, user, user) }))?;
    // SAFETY: the call has only integer arguments.
    confined("the user", done(unsafe { libc::setresuid(user, user, user) }))
}

/// Limits the number of threads of the worker's user. Other programs do not run as this user.
pub(super) fn limit_threads() -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nproc);
    let [current, maximum] =
        [limit.current, limit.maximum].map(|limit| Some(limit.map_or(THREADS, |limit| limit.min(THREADS))));
    setrlimit(Resource::Nproc, Rlimit { current, maximum })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_part_stays_root_without_the_capabilities_that_replace_root() {
        if !geteuid().is_root() {
            return;
        }
        let all = caps::all();
        let users = |given: &CapsHashSet| {
            [Part::Supervisor, Part::Writer, Part::Loader, Part::Reader, Part::Worker].map(|part| part.user(given))
        };
        assert_eq!(users(&all), [None, None, Some(LOADER), Some(READER), Some(USER)]);
        let without = |lacking| all.difference(&HashSet::from([lacking])).copied().collect();
        assert_eq!(users(&without(Capability::CAP_DAC_OVERRIDE)), [None, None, Some(LOADER), None, Some(USER)]);
        assert_eq!(users(&without(Capability::CAP_DAC_READ_SEARCH)), [None, None, None, None, Some(USER)]);
        assert_eq!(users(&without(Capability::CAP_SETGID)), [None; 5]);
    }
}
