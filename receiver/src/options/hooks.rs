//! How the kernel is listened to.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the kernel is listened to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hooks {
    /// Means that are not used, where a kernel or a policy has trouble with them: alternates serve where there are some.
    /// `undercurrent doctor` says what is left. `--avoid` adds to it.
    pub avoid: Vec<Means>,
}

/// A way to listen to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Means {
    /// Trampolines at a function's entry or exit.
    Fentry,
    /// Breakpoints at a function's entry or return.
    Kprobe,
    /// Tracepoints with typed arguments.
    Tracepoint,
    /// Programs in the path of a cgroup's packets and sockets.
    Cgroup,
}

impl Means {
    /// The word in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
            Self::Cgroup => "cgroup",
        }
    }
}
