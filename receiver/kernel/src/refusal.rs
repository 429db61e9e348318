//! Requests that the kernel refused.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The program of the eBPF object, or the function that the user named.
    pub program: Cow<'static, str>,
    /// The refused request and the kernel's reason.
    pub what: String,
    /// The remedy.
    pub cure: String,
    /// True if the remedy is a change of this sidecar's privileges or environment; false if the program needs another
    /// kernel, machine or policy, or if the user excluded it.
    pub is_curable: bool,
}

impl Refusal {
    /// Returns a refusal with a remedy on this machine.
    #[must_use]
    pub fn new(program: impl Into<Cow<'static, str>>, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { program: program.into(), what: what.into(), cure: cure.into(), is_curable: true }
    }
}
