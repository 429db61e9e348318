//! The profile of the security module that confines this process, and its effect.

use std::{fs, io};

use serde::Serialize;

/// The files with the profile of this process: AppArmor's own, and the file that all modules share.
const FILES: [&str; 2] = ["/proc/self/attr/apparmor/current", "/proc/self/attr/current"];
/// A link that requires the permission to inspect another process (`ptrace_may_access`).
const INSPECTED: &str = "/proc/1/ns/net";

/// A profile of AppArmor, or a context of SELinux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityProfile {
    /// The profile with its mode, or the context.
    pub name: String,
    /// True if the module forbids to inspect other processes.
    pub forbids_inspection: bool,
}

impl SecurityProfile {
    /// Returns the profile of this process; `None` if no security module confines it. `may_inspect` is true if this process has
    /// the capability to inspect other processes.
    #[must_use]
    pub fn of_this_process(may_inspect: bool) -> Option<Self> {
        let name = FILES.iter().find_map(|file| profile(&fs::read(file).ok()?))?;
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let forbids_inspection = may_inspect && fs::read_link(INSPECTED).is_err_and(|error| is_refused(&error));
        Some(Self { name, forbids_inspection })
    }
}

/// Parses the content of a file; `None` for AppArmor's `unconfined`. SELinux ends the context with a zero byte.
fn profile(content: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(content);
    let text = text.trim_end_matches(['\0', '\n']);
    (!text.is_empty() && text != "unconfined").then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_both_modules_are_read() {
        assert_eq!(profile(b"docker-default (enforce)\n").as_deref(), Some("docker-default (enforce)"));
        let context = b"system_u:system_r:container_t:s0:c1,c2\0";
        assert_eq!(profile(context).as_deref(), Some("system_u:system_r:container_t:s0:c1,c2"));
        assert_eq!([&b"unconfined\n"[..], b"", b"\0"].map(profile), [None, None, None]);
    }
}
