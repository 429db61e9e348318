//! What the kernel said no to, in words that name the cure.

use std::io;

use aya::programs::ProgramError;
use serde::Serialize;

use super::{hooks::Program, host::Host};

/// A request that the kernel did not grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Whom it was for: a program of the object.
    pub program: &'static str,
    /// What was refused, and what the kernel said.
    pub what: String,
    /// What to do about it.
    pub cure: String,
}

/// `ENOTSUPP`, which the kernel returns for missing trampolines and which no C library knows.
const ENOTSUPP: i32 = 524;

impl Refusal {
    /// Explains why a program could not be loaded or attached.
    #[must_use]
    pub fn of(program: &Program, error: &ProgramError, host: &Host) -> Self {
        let (what, cure) = match error {
            ProgramError::Btf(_) => (
                "this kernel has nothing of that name to attach to (inlined, not built, or in a module)".to_owned(),
                "none needed where an alternate serves; else use a kernel that has it".to_owned(),
            ),
            ProgramError::LoadError { io_error, verifier_log } => {
                (format!("load: {io_error}{}", verdict(&verifier_log.to_string())), cure(io_error, host))
            }
            ProgramError::SyscallError(error) => {
                (format!("attach to {}: {}", program.target, error.io_error), cure(&error.io_error, host))
            }
            ProgramError::IOError(error) => (format!("attach to {}: {error}", program.target), cure(error, host)),
            other => (other.to_string(), REPORT.to_owned()),
        };
        Self { program: program.symbol, what, cure }
    }
}

const REPORT: &str = "report it together with the output of `undercurrent doctor --json`";

fn cure(error: &io::Error, host: &Host) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !host.missing_capabilities.is_empty() => {
            format!("grant {} (or run as root)", host.missing_capabilities.join(", "))
        }
        Some(libc::EPERM | libc::EACCES) if host.lockdown.as_deref().is_some_and(|mode| mode != "none") => {
            "kernel lockdown forbids it: boot without lockdown=confidentiality".to_owned()
        }
        Some(libc::EPERM) => {
            "this host's policy forbids this kind of program to everybody; the alternate serves where there is one"
                .to_owned()
        }
        Some(libc::ENOENT) => "the target does not exist on this kernel; use one that has it".to_owned(),
        Some(ENOTSUPP | libc::EOPNOTSUPP) => {
            "this architecture or kernel has no BPF trampolines; the alternate serves where there is one".to_owned()
        }
        Some(libc::ENOMEM | libc::E2BIG) => {
            "raise the memory limit (`ulimit -l unlimited`) or lower `memory_limit`".to_owned()
        }
        _ => REPORT.to_owned(),
    }
}

/// The verifier's last words, which hold its reason.
fn verdict(log: &str) -> String {
    let reason = log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("processed "));
    reason.map_or_else(String::new, |reason| format!("; the verifier said: {reason}"))
}
