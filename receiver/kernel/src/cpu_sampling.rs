//! Control of the samples and counters of CPUs.

use std::{io, time::Duration};

use super::{
    client::{Client, ServiceError},
    cpu_events::CpuEvent,
    messages::{FindText, ReopenCounters, SetPeriods},
    text::Text,
};

/// Sets the periods of events on CPUs, opens their counters again, and finds the functions of samples.
pub struct CpuSampling(Client);

impl CpuSampling {
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// Sets the periods of an event on CPUs. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel refuses.
    pub fn set(&self, event: CpuEvent, periods: Vec<(u32, u64)>) -> Result<(), ServiceError> {
        self.0.call(SetPeriods { event, periods })
    }

    /// Sets the period of the timer that samples, on every CPU that is online.
    ///
    /// # Errors
    /// If the list of CPUs cannot be read, the loader cannot be reached, or the kernel refuses.
    pub fn set_clock(&self, period: Duration) -> io::Result<()> {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let online = aya::util::online_cpus().map_err(|(_, error)| error)?;
        Ok(self.set(CpuEvent::Clock, online.into_iter().map(|cpu| (cpu, period)).collect())?)
    }

    /// Opens the counters of CPUs again, after the CPUs were offline. Skips CPUs that are offline.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel refuses.
    pub fn reopen_counters(&self, cpus: Vec<u32>) -> Result<(), ServiceError> {
        self.0.call(ReopenCounters { cpus })
    }

    /// Finds the functions that samples are classified by in the kernel and its modules.
    ///
    /// # Errors
    /// If the loader cannot be reached, or the kernel hides addresses.
    pub fn find_text(&self) -> Result<Text, ServiceError> {
        self.0.call(FindText {})
    }
}
