//! Failures of signals.

use std::io;

use crate::{
    kernel::KernelError,
    workloads::{NoAccounting, NoQuotas},
};

/// A failure to read a signal.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}: {source}")]
pub struct ReadError {
    /// The file or map.
    pub what: &'static str,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

/// A failure to open a signal.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A map is not available.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel has no CPU time by cgroup.
    #[error(transparent)]
    NoAccounting(#[from] NoAccounting),
    /// The kernel has no throttled time by cgroup.
    #[error(transparent)]
    NoQuotas(#[from] NoQuotas),
}
