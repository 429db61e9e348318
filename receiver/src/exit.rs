//! The exit statuses of the program. The help texts and docs/install.md list them.

/// `run` delivered no snapshot.
pub const NOTHING_DELIVERED: u8 = 1;
/// `why` found no workload, or several.
pub const NO_WORKLOAD: u8 = 1;
/// `doctor` found signals that are degraded or unavailable.
pub const DEGRADED: u8 = 1;
/// The command line, the configuration or an output is invalid. clap uses this status for command lines.
pub const INVALID: u8 = 2;
/// The sidecar cannot run on this machine, or one of its parts failed.
pub const CANNOT_RUN: u8 = 3;
