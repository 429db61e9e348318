//! Attachment of eBPF programs to the kernel.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Attachment of eBPF programs to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hooks {
    /// Attachment kinds that are not used, for example if a kernel or a policy fails with them. Alternatives replace
    /// them if they exist. `undercurrent doctor` lists the remaining signals. `--avoid` adds to this list.
    pub avoid: Vec<AttachKind>,
}

/// The kind of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum AttachKind {
    /// Trampolines at the entry or exit of a function.
    Fentry,
    /// Breakpoints at the entry or return of a function.
    Kprobe,
    /// Tracepoints with typed arguments (`tp_btf`).
    Tracepoint,
    /// Programs that a cgroup runs for its packets and sockets.
    Cgroup,
    /// Timers or hardware counters that interrupt each CPU regularly.
    PerfEvent,
}

impl AttachKind {
    /// Returns the name in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
            Self::Cgroup => "cgroup",
            Self::PerfEvent => "perf_event",
        }
    }
}
