//! Control of the samples and counters of CPUs.

use std::time::Duration;

use super::{
    client::{Client, ServiceError},
    text::Text,
};

/// Sets the sampling periods of CPUs, opens their counters again, and finds the functions of samples.
pub struct CpuSampling(Client);

impl CpuSampling {
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Sets the periods of CPUs. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel refuses.
    pub fn set(&self, periods: impl IntoIterator<Item = (u32, Duration)>) -> Result<(), ServiceError> {
        let nanoseconds = |period: Duration| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        self.0.sample(periods.into_iter().map(|(cpu, period)| (cpu, nanoseconds(period))).collect())
    }

    /// Opens the counters of CPUs again, after the CPUs were offline. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel refuses.
    pub fn reopen_counters(&self, cpus: Vec<u32>) -> Result<(), ServiceError> {
        self.0.reopen_counters(cpus)
    }

    /// Finds the functions that samples are classified by in the kernel and its modules.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel hides addresses.
    pub fn find_text(&self) -> Result<Text, ServiceError> {
        self.0.find_text()
    }
}
