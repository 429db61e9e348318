//! Separation of the sidecar's processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Separation of the sidecar's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Separation {
    /// Accept that the worker stays root, without capabilities, if the sidecar is started as root without `CAP_SETUID` and
    /// `CAP_SETGID`. A worker that was taken over can then read files of root below `/etc`, `/usr`, `/proc` and `/sys`. By default, the
    /// sidecar refuses to start.
    pub root_worker: bool,
    /// Drop the loader's capabilities once all programs are attached. It then cannot attach programs any more: CPUs and NICs that
    /// appear later are not measured. On kernels before 5.19 with `kernel.unprivileged_bpf_disabled`, sampling, the packet filter and
    /// the threshold of slow packets stay as they were at the start.
    pub frozen: bool,
}
