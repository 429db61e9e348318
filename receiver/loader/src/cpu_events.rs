//! The perf events that run a program regularly on every CPU.

use std::collections::BTreeMap;

use aya::programs::{
    PerfEvent, ProgramError,
    perf_event::{HardwareEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
};
use caps::Capability;
use undercurrent_kernel::{counters::Events, cpu_events::CpuEvent};

use crate::privileges;

/// The highest sampling frequency in hertz: the limit of `cpu-clock` events (`perf_swevent_start_hrtimer`).
const HIGHEST_FREQUENCY: u64 = 10_000;
/// The periods of the CPUs are longer than the requested one by up to this share.
///
/// Interrupts with equal periods keep their distance. In a virtual machine where two CPUs exchanged messages, the sampled time of softirqs
/// was then 20% below or 70% above the exact time until a period changed. The probable cause: an interrupt delays its CPU and so the exchange,
/// and the interrupt of the other CPU then always hits the same point of it.
const SPREAD: f64 = 0.02;

/// Returns a period of a CPU, which differs from that of every other CPU.
fn of_cpu(period: u64, cpu: u32) -> u64 {
    // Multiples of the golden ratio, without their integer parts, have similar distances for any number of CPUs.
    let share = (f64::from(cpu) * 0.618_033_988_749_895).fract();
    (period as f64 * (1.0 + SPREAD * share)) as u64
}

/// Returns the perf event of an event.
const fn config(event: CpuEvent, kind: Events) -> PerfEventConfig {
    match (event, kind) {
        (CpuEvent::Cycles, Events::Hardware) => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
        (CpuEvent::Clock | CpuEvent::Tick, _) | (CpuEvent::Cycles, Events::Software) => {
            PerfEventConfig::Software(SoftwareEvent::CpuClock)
        }
    }
}

/// The open events. The kernel stops an event for good if its CPU goes offline.
pub struct CpuEvents {
    kind: Events,
    links: BTreeMap<(CpuEvent, u32), PerfEventLinkId>,
}

impl CpuEvents {
    /// Returns no events. Events of the processor will be of this kind.
    #[must_use]
    pub const fn new(kind: Events) -> Self {
        Self { kind, links: BTreeMap::new() }
    }

    /// Attaches the program of an event to every CPU that is online.
    ///
    /// # Errors
    /// If the list of CPUs cannot be read, or the kernel refuses an event.
    pub fn attach(&mut self, event: CpuEvent, program: &mut PerfEvent) -> Result<(), ProgramError> {
        let online = aya::util::online_cpus().map_err(|(_, error)| error)?;
        online.into_iter().try_for_each(|cpu| self.set(event, program, cpu, event.first_period()))
    }

    /// Replaces the event of a CPU by one with another period, which is up to 2% longer than `period`. Does nothing if the CPU is offline.
    ///
    /// # Errors
    /// If the kernel refuses the event.
    pub fn set(&mut self, event: CpuEvent, program: &mut PerfEvent, cpu: u32, period: u64) -> Result<(), ProgramError> {
        if let Some(link) = self.links.remove(&(event, cpu)) {
            program.detach(link)?;
        }
        let period = of_cpu(period.max(event.highest_rate() / HIGHEST_FREQUENCY), cpu);
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        // Debian's and Ubuntu's kernels require the capability for perf events.
        let attach = || program.attach(config(event, self.kind), scope, SamplePolicy::Period(period), false);
        match privileges::with(Capability::CAP_SYS_ADMIN, attach) {
            Ok(link) => {
                self.links.insert((event, cpu), link);
                Ok(())
            }
            Err(error) if is_offline(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets the events of a program, which unloading it has closed.
    pub fn forget(&mut self, event: CpuEvent) {
        self.links.retain(|(of, _), _| *of != event);
    }
}

fn is_offline(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(error) = error else { return false };
    error.io_error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cpu_has_its_own_period() {
        let periods: BTreeSet<_> = (0..1024).map(|cpu| of_cpu(1_003_009, cpu)).collect();
        assert_eq!((periods.len(), periods.first()), (1024, Some(&1_003_009)));
        assert!(periods.iter().all(|period| *period < 1_023_070));
    }
}
