//! The perf events that run a program at regular intervals on every CPU.

use std::{collections::BTreeMap, time::Duration};

use aya::programs::{
    PerfEvent, ProgramError,
    perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
};
use caps::Capability;

use crate::privileges;

/// The period of a CPU's event until user space sets another one: 99 Hz. It is no divisor of a tick of the kernel, so samples do
/// not coincide with work at each tick.
pub const FIRST_PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 99);

/// The shortest period: 10 kHz, the limit of `cpu-clock` events (`perf_swevent_start_hrtimer`).
const SHORTEST_PERIOD: Duration = Duration::from_micros(100);

/// The events of each CPU. The kernel stops an event for good if its CPU goes offline.
#[derive(Default)]
pub struct CpuClocks(BTreeMap<u32, PerfEventLinkId>);

impl CpuClocks {
    /// Attaches a program to every CPU that is online.
    ///
    /// # Errors
    /// If the list of CPUs cannot be read, or the kernel refuses an event.
    pub fn attach(&mut self, program: &mut PerfEvent) -> Result<(), ProgramError> {
        let online = aya::util::online_cpus().map_err(|(_, error)| error)?;
        online.into_iter().try_for_each(|cpu| self.set(program, cpu, FIRST_PERIOD))
    }

    /// Replaces the event of a CPU by one with another period. Does nothing if the CPU is offline.
    ///
    /// # Errors
    /// If the kernel refuses the event.
    pub fn set(&mut self, program: &mut PerfEvent, cpu: u32, period: Duration) -> Result<(), ProgramError> {
        if let Some(link) = self.0.remove(&cpu) {
            program.detach(link)?;
        }
        let period = u64::try_from(period.max(SHORTEST_PERIOD).as_nanos()).unwrap_or(u64::MAX);
        let event = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        // Debian's and Ubuntu's kernels require the capability for perf events.
        let attach = || program.attach(event, scope, SamplePolicy::Period(period), false);
        match privileges::with(Capability::CAP_SYS_ADMIN, attach) {
            Ok(link) => {
                self.0.insert(cpu, link);
                Ok(())
            }
            Err(error) if is_offline(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets the events, which unloading the program has closed.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn is_offline(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(error) = error else { return false };
    error.io_error.raw_os_error() == Some(libc::ENODEV)
}
