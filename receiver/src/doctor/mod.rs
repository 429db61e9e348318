//! `undercurrent doctor`: reports which signals work on this machine, their sources, and remedies for problems.

mod collector;
mod energy;
mod fields;
mod page;
mod probe;
mod profile;

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    config::Settings,
    descriptors, exit,
    export::otlp,
    kernel::{
        hooks::Hook,
        host::Host,
        plan::{Outcome, Status},
    },
    options::GroupLimit,
    parts::{Access, Confinement, Part, Program},
    privileges::Task,
    requirements::{self, Requirements},
    sidecar,
    signals::{self, SignalStatus, all_hooks},
};

pub use collector::Collector;
pub use energy::{EnergyCheckError, check as check_energy};
pub use fields::AbsentField;
pub use page::page;
pub use profile::SecurityProfile;

/// The overall result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every enabled signal is healthy, or has nothing to measure on this machine.
    Healthy,
    /// Some signals measure less than on a healthy machine.
    Degraded,
    /// The sidecar cannot run.
    Unusable,
}

/// The best verdict with a non-zero exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Fail if a signal is degraded or unavailable.
    #[default]
    Degraded,
    /// Fail only if the sidecar cannot run.
    Unusable,
}

impl Verdict {
    /// Returns the exit status.
    #[must_use]
    pub const fn exit_status(self, fail_on: FailOn) -> u8 {
        match (self, fail_on) {
            (Self::Healthy, _) | (Self::Degraded, FailOn::Unusable) => 0,
            (Self::Degraded, FailOn::Degraded) => exit::DEGRADED,
            (Self::Unusable, _) => exit::CANNOT_RUN,
        }
    }
}

/// The results of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The sidecar's version.
    pub version: &'static str,
    /// The overall result.
    pub verdict: Verdict,
    /// The reason if the sidecar cannot run.
    pub reason: Option<String>,
    /// The reason if the requested probe sent no traffic.
    pub no_probe: Option<String>,
    /// The kernel; `None` if it could not be detected.
    pub host: Option<Host>,
    /// Missing capabilities of this process, each with its purpose and with the measurements that are missing.
    pub lacks: Vec<String>,
    /// The way to grant the missing capabilities.
    pub grant: Option<String>,
    /// The profile of the security module that confines this process.
    pub security_profile: Option<SecurityProfile>,
    /// The result of a trial delivery to each collector.
    pub collectors: Vec<Collector>,
    /// The restrictions of each part of the sidecar.
    pub parts: Vec<Confinement>,
    /// Kernel fields that are missing.
    pub absent_fields: Vec<AbsentField>,
    /// The result of each hook.
    pub hooks: Vec<HookReport>,
    /// The memory of the maps.
    pub memory: Memory,
    /// The sources of the node's CPU time; `None` without cgroups, and if `workload_cpu` is off.
    pub cpu_time: Option<String>,
    /// The status of each signal.
    pub signals: Vec<SignalStatus>,
}

/// The result of attaching and probing a hook.
#[derive(Clone, Debug, Serialize)]
pub struct HookReport {
    /// The result of attaching.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Runs of each attached program during the probe; `None` without a probe.
    pub runs: Option<Vec<(Cow<'static, str>, u64)>>,
}

/// Memory of the maps with a size that depends on the number of CPUs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// Bytes of each map.
    pub maps: Vec<(&'static str, usize)>,
    /// Bytes of all maps.
    pub planned: usize,
    /// `memory_limit`, in bytes.
    pub limit: u64,
}

/// Attaches the programs for the settings through the loader, reports on this machine, and detaches them. Sends an empty
/// request to each collector. With `probe` it also sends packets over loopback. This process must be single-threaded.
#[must_use]
pub fn examine(settings: &Settings, collectors: &[(otlp::Items, &otlp::Settings)], probe: bool) -> Report {
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        verdict: Verdict::Unusable,
        reason: None,
        no_probe: None,
        host: None,
        lacks: Vec::new(),
        grant: None,
        security_profile: None,
        collectors: Vec::new(),
        parts: Vec::new(),
        absent_fields: Vec::new(),
        hooks: Vec::new(),
        memory: Memory { limit: settings.memory_limit.bytes(), ..Memory::default() },
        cpu_time: None,
        signals: Vec::new(),
    };
    if let Err(reason) = fill(&mut report, settings, collectors, probe) {
        report.reason = Some(descriptors::explained(&reason.to_string()).into_owned());
    }
    report
}

/// Returns settings with the smallest maps. A sidecar with the configured maps may run beside `doctor`, within the memory limit
/// of one container.
fn smallest(settings: &Settings) -> Settings {
    let mut smallest = settings.clone();
    smallest.workloads.limit = 1;
    smallest.packets.group.limit = GroupLimit::LEAST;
    smallest
}

fn fill(
    report: &mut Report,
    settings: &Settings,
    collectors: &[(otlp::Items, &otlp::Settings)],
    probe: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    descriptors::raise();
    let (mut host, privileges) = requirements::host()?;
    let lacks = privileges.lacks(&requirements::tasks(settings));
    report.lacks = lacks.iter().map(|lack| format!("{lack}: {}", lack.task.effect())).collect();
    report.grant = (!lacks.is_empty()).then(|| privileges.grant(&lacks));
    report.security_profile = SecurityProfile::of_this_process(privileges.lack(Task::InspectProcesses).is_none());
    let requirements = Requirements::new(settings, host.ownership());
    let writes = !requirements.places(&host).outputs.is_empty();
    let parts = Part::ALL.into_iter().filter(|part| *part != Part::Writer || writes);
    report.parts = parts.map(Part::confinement).collect::<Result<_, _>>()?;
    host.meters = requirements.sysfs().meters();
    report.memory.maps = requirements.maps(host.cpus).iter().map(|map| (map.name, map.bytes())).collect();
    report.memory.planned = report.memory.maps.iter().map(|(_, bytes)| bytes).sum();
    report.host = Some(host.clone());
    privileges.require(&requirements::required_tasks(settings))?;
    requirements.within_memory(settings.memory_limit, host.cpus)?;
    // Programs attach with the loader's privileges, as in `run`. This process has more.
    let requirements = Requirements::new(&smallest(settings), host.ownership());
    let mut access = Access::gain(&Program::own()?, host, &requirements)?;
    report.collectors = collector::try_all(collectors)?;
    requirements.serve(&mut access.kernel)?;
    let kernel = &access.kernel;
    // A failed probe does not affect measurements.
    let runs = probe.then(|| probe::runs(kernel)).transpose().unwrap_or_else(|error| {
        report.no_probe = Some(error.to_string());
        None
    });
    report.absent_fields = fields::absent(kernel.fields());
    report.hooks = kernel.outcomes().iter().map(|outcome| hook(outcome, runs.as_deref())).collect();
    report.cpu_time = if settings.signals.workload_cpu.enabled { signals::cpu_time_source(kernel) } else { None };
    report.signals = sidecar::statuses(settings, kernel);
    let silent = report.hooks.iter().any(HookReport::silent);
    let well = |signal: &SignalStatus| !signal.enabled || matches!(signal.status, Status::Healthy | Status::Idle);
    let delivers = report.collectors.iter().all(|collector| collector.problem.is_none());
    let whole = report.signals.iter().all(well) && !silent && delivers;
    report.verdict = if whole { Verdict::Healthy } else { Verdict::Degraded };
    Ok(())
}

fn hook(outcome: &Outcome, runs: Option<&[(String, u64)]>) -> HookReport {
    let of = |program: &Cow<'static, str>| {
        let runs = runs.into_iter().flatten().find(|(name, _)| name == program).map_or(0, |(_, runs)| *runs);
        (program.clone(), runs)
    };
    HookReport { outcome: outcome.clone(), runs: runs.map(|_| outcome.programs.iter().map(of).collect()) }
}

impl HookReport {
    /// Returns true if the probe's traffic should trigger the hook and one of its programs did not run.
    #[must_use]
    pub fn silent(&self) -> bool {
        let concerned = self.hook().is_some_and(|hook| hook.sees_traffic);
        concerned && self.runs.as_ref().is_some_and(|runs| runs.iter().any(|(_, runs)| *runs == 0))
    }

    /// Returns the hook.
    #[must_use]
    pub fn hook(&self) -> Option<&'static Hook> {
        all_hooks().into_iter().find(|hook| hook.name == self.outcome.hook)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_follow_the_verdict_and_the_threshold() {
        let statuses = |fail_on| {
            [Verdict::Healthy, Verdict::Degraded, Verdict::Unusable].map(|verdict| verdict.exit_status(fail_on))
        };
        assert_eq!(statuses(FailOn::Degraded), [0, 1, 3]);
        assert_eq!(statuses(FailOn::Unusable), [0, 0, 3]);
    }
}
