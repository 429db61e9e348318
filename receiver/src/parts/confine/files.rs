//! What of the file system the worker may open (Landlock, Linux 5.13 and later).

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use serde::Serialize;

/// Folders with what the worker reads: the kernel's statistics, the resolver's settings and libraries, certificates, and
/// the token of a Kubernetes service account. Nothing may be written or executed.
const READABLE: [&str; 12] = [
    "/proc",
    "/sys",
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run",
    "/var/run",
    "/var/lib/ca-certificates",
    "/nix/store",
    "/dev/null",
    "/dev/urandom",
];
/// The newest rights that this module knows. Older kernels restrict less.
const NEWEST: ABI = ABI::V6;

/// How far the kernel restricts the worker's access to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// Landlock restricts it.
    Landlock,
    /// The kernel has no Landlock, or it is off: the user's rights alone restrict it.
    UserOnly,
}

impl FileAccess {
    /// What this kernel can do.
    #[must_use]
    pub fn supported() -> Self {
        /// `LANDLOCK_CREATE_RULESET_VERSION` of `include/uapi/linux/landlock.h`.
        const VERSION: libc::c_uint = 1;
        let (no_ruleset, no_bytes) = (std::ptr::null::<u8>(), 0_usize);
        // SAFETY: with this flag the call reads no memory, and returns a version.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_ruleset, no_bytes, VERSION) };
        if version > 0 { Self::Landlock } else { Self::UserOnly }
    }
}

/// Restricts this thread and those that it starts.
pub(super) fn restrict() -> Result<FileAccess, RulesetError> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(READABLE, AccessFs::ReadFile | AccessFs::ReadDir))?
        .restrict_self()?;
    Ok(if status.ruleset == RulesetStatus::NotEnforced { FileAccess::UserOnly } else { FileAccess::Landlock })
}
