//! Separation of the sidecar's processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Separation of the sidecar's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Separation {
    /// Accept that the worker stays root, without capabilities, if the sidecar is started as root without `CAP_SETUID` and
    /// `CAP_SETGID`. Files of root are then protected from it by Landlock only, and the sidecar refuses to start by default.
    pub root_worker: bool,
}
