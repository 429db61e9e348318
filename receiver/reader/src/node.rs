//! Files about the node: power meters, the kernel's threads, and the parts of the sidecar.

use std::{io, time::Duration};

use super::{
    Reader,
    message::{ReadMeters, ReadPartUsages, ReadSoftirqThreads},
};
use crate::{process_usage::ProcessUsage, sysfs::Meters};

/// Reads the power meters through the reader: only root may read the counters of RAPL.
#[derive(Clone)]
pub struct PowerMeters(Reader);

impl PowerMeters {
    /// Meters below the reader's root of sysfs.
    #[must_use]
    pub const fn through(reader: Reader) -> Self {
        Self(reader)
    }

    /// Returns every meter with its reading.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn read(&self) -> io::Result<Meters> {
        self.0.files(ReadMeters {})
    }
}

/// Reads the kernel's threads for softirqs through the reader: the worker sees no other processes.
#[derive(Clone)]
pub struct SoftirqThreads(Reader);

impl SoftirqThreads {
    /// Threads that the reader sees.
    #[must_use]
    pub const fn through(reader: Reader) -> Self {
        Self(reader)
    }

    /// Returns for how long the thread of each CPU was ready to run and waited for its CPU, since it was created. Returns none in another pid
    /// namespace, and without `CONFIG_SCHED_INFO`.
    ///
    /// # Errors
    /// If the reader does not respond.
    pub fn waits(&self) -> io::Result<Vec<(u32, Duration)>> {
        self.0.files(ReadSoftirqThreads {})
    }
}

/// Returns the CPU time and the memory of parts of the sidecar, in their order; `None` for a part that has ended.
///
/// # Errors
/// If the reader does not respond.
pub fn usages_of_parts(reader: &Reader, processes: &[u32]) -> io::Result<Vec<Option<ProcessUsage>>> {
    reader.files(ReadPartUsages { processes: processes.to_vec() })
}
