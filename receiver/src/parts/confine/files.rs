//! The files that the worker and the writer may open (Landlock, Linux 5.13 and later), and the TCP ports that the worker may connect to (Linux
//! 6.7 and later). The reader has no such restriction: Landlock denies a restricted process the files in `/proc` of processes that are not
//! restricted likewise.

use std::{
    collections::BTreeSet,
    mem,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use serde::Serialize;

/// Folders that the worker reads: kernel statistics, settings and libraries of the resolver, certificates, and the
/// token of a Kubernetes service account. The worker may not write or execute files there.
const READABLE: [&str; 14] = [
    "/sys",
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    // Targets of /etc/resolv.conf.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/secrets",
    "/var/run/secrets",
    "/var/lib/ca-certificates",
    "/nix/store",
    "/dev/null",
    "/dev/urandom",
];
/// The files and folders of `/proc` that the worker reads, of no other process. `/proc/net` belongs to `/proc/self`.
const OF_PROC: [&str; 5] = ["/proc/self", "/proc/stat", "/proc/modules", "/proc/cgroups", "/proc/sys"];
/// The newest Landlock ABI that this module uses. Older kernels support a part of its rights.
const NEWEST: ABI = ABI::V6;

/// The port of DNS servers, which receive long queries over TCP.
const DNS: u16 = 53;

/// What the parts may access for a configuration, besides what they always access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The TCP ports of the worker: those of collectors and of the Kubernetes API.
    pub ports: BTreeSet<u16>,
    /// True if the worker opens Unix sockets, which it does to notify a service manager.
    pub notifies: bool,
    /// True if the worker draws on a terminal, and sets the modes of standard input.
    pub draws: bool,
    /// True if the worker accepts connections to the endpoints that the first process has opened. Landlock denies it to bind others.
    pub listens: bool,
    /// The files of outputs that the writer opens for appending. The writer inherits the supervisor's filter, so the supervisor may append too
    /// until it has started the loader.
    pub outputs: Vec<PathBuf>,
}

/// The restriction of a part's access to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// Landlock restricts it.
    Landlock,
    /// The kernel lacks Landlock, Landlock is disabled, or the part needs files that a rule cannot name. Only file permissions apply.
    UserOnly,
}

impl FileAccess {
    /// Returns the restriction that this kernel supports.
    #[must_use]
    pub fn supported() -> Self {
        /// `LANDLOCK_CREATE_RULESET_VERSION` of `include/uapi/linux/landlock.h`.
        const VERSION: libc::c_uint = 1;
        let (no_ruleset, no_bytes) = (std::ptr::null::<u8>(), 0_usize);
        // SAFETY: with `LANDLOCK_CREATE_RULESET_VERSION` the call takes a null pointer and size zero, accesses no
        // memory, and returns a version.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_ruleset, no_bytes, VERSION) };
        if version > 0 { Self::Landlock } else { Self::UserOnly }
    }
}

/// Restricts this thread and all threads that it starts.
pub(super) fn restrict(reach: &Reach) -> Result<FileAccess, RulesetError> {
    let ports = reach.ports.iter().copied().chain([DNS]);
    keep_open(&OF_PROC);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(READABLE.iter().chain(&OF_PROC), AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(ports.map(|port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))))?
        .restrict_self()?;
    Ok(if status.ruleset == RulesetStatus::NotEnforced { FileAccess::UserOnly } else { FileAccess::Landlock })
}

/// Restricts this thread to the folders of these files: it opens and creates regular files there, and reads none.
pub(super) fn restrict_to_outputs(files: &[PathBuf]) -> Result<(), RulesetError> {
    let folder = |file: &PathBuf| match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(files.iter().map(folder), AccessFs::WriteFile | AccessFs::MakeReg))?
        .restrict_self()?;
    Ok(())
}

/// Keeps files open as long as this process runs. The kernel drops unused files of `/proc` from its cache, and creates them again without
/// the rules of the earlier ones.
fn keep_open(paths: &[&str]) {
    paths.iter().filter_map(|path| PathFd::new(path).ok()).for_each(mem::forget);
}
