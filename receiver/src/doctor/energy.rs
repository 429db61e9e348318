//! `undercurrent doctor --energy`: two known loads, alone and together, and the energy that each was charged.
//!
//! The phases are those of table 3 in Brondolin and Santambrogio, "A Black-box Monitoring Approach to Measure Microservices
//! Runtime Performance" (DEEP-mon), 2020: a fair division charges a load about as much together with another load as alone.

use std::{ffi::CStr, hint::black_box, io, time::Duration};

use procfs::{CurrentSI as _, KernelStats, process};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::{
    parts::Process,
    signals::{EnergySettings, Phase, Trial},
    sysfs::Sysfs,
    telemetry::Microjoules,
};

/// The length of a phase.
const PHASE: Duration = Duration::from_secs(5);
/// The time for a load to end.
const END: Duration = Duration::from_secs(1);
/// The bytes that the second load reads: more than the caches of most processors.
const BYTES: usize = 64 << 20;

/// The self-check failed.
#[derive(Debug, thiserror::Error)]
pub enum EnergyCheckError {
    /// A load cannot be started.
    #[error("cannot start a load: {0}")]
    Load(#[from] io::Error),
    /// The CPU time of a load or of the node cannot be read.
    #[error("cannot read CPU times: {0}")]
    CpuTime(#[from] procfs::ProcError),
    /// No source measures the processors.
    #[error(
        "no power meter of the processors is readable: `undercurrent doctor` gives the reason; set `signals.energy.model` to check \
         the division of an estimate"
    )]
    NoSource,
}

/// A load with its name, its process and its work.
struct Load {
    name: &'static str,
    process: Process,
}

/// A load's name and its function, which never returns.
type Work = (&'static str, &'static CStr, fn());

const LOADS: [Work; 2] = [("arithmetic", c"uc-arithmetic", calculate), ("memory", c"uc-memory", walk)];

/// Runs the loads alone and together, and returns a table of powers. This process must be single-threaded.
///
/// # Errors
/// If a load cannot run, or no source measures the processors.
pub fn check(settings: &EnergySettings, sysfs: Sysfs) -> Result<String, EnergyCheckError> {
    let mut trial = Trial::new(settings, sysfs);
    let mut rows = vec![("no load", measure(&mut trial, &[])?)];
    for work in LOADS {
        rows.push((work.0, measure(&mut trial, &[work])?));
    }
    rows.push(("together", measure(&mut trial, &LOADS)?));
    Ok(table(&rows))
}

/// Measures a phase with these loads. Loads that do not run have no CPU time.
fn measure(trial: &mut Trial, works: &[Work]) -> Result<Phase, EnergyCheckError> {
    let start = |(name, process, run): &Work| -> io::Result<Load> {
        let process = Process::start(process, Vec::new(), |_| {
            // A load must not outlive a check that is interrupted.
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
            run();
            Ok(())
        })?;
        Ok(Load { name, process })
    };
    let loads = works.iter().map(start).collect::<io::Result<Vec<_>>>()?;
    times(&loads)?;
    // The first reading succeeded, so later failures mean that a load has ended.
    trial
        .phase(PHASE, || times(&loads).unwrap_or_else(|_| vec![Duration::ZERO; LOADS.len() + 1]))
        .ok_or(EnergyCheckError::NoSource)
}

/// Returns the CPU time of each load in [`LOADS`], and last of all other tasks.
fn times(loads: &[Load]) -> Result<Vec<Duration>, procfs::ProcError> {
    let mut times = Vec::with_capacity(LOADS.len() + 1);
    for (name, ..) in LOADS {
        let running = loads.iter().find(|load| load.name == name);
        times.push(running.map(Load::cpu_time).transpose()?.unwrap_or_default());
    }
    let cpus = KernelStats::current()?.total;
    let ticks = cpus.user + cpus.nice + cpus.system + cpus.irq.unwrap_or(0) + cpus.softirq.unwrap_or(0);
    let all = Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / procfs::ticks_per_second()));
    times.push(all.saturating_sub(times.iter().sum()));
    Ok(times)
}

impl Load {
    /// Returns the run time of its only thread.
    fn cpu_time(&self) -> Result<Duration, procfs::ProcError> {
        let process = process::Process::new(self.process.number().cast_signed())?;
        Ok(Duration::from_nanos(process.schedstat()?.sum_exec_runtime))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.process.kill();
        let _ = self.process.wait(END);
    }
}

/// Uses the arithmetic units.
fn calculate() {
    let mut state = 1_u64;
    loop {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Uses the caches and the memory.
fn walk() {
    let mut bytes = vec![1_u8; BYTES];
    loop {
        bytes.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&mut bytes);
    }
}

/// Formats the mean powers of each phase.
fn table(rows: &[(&str, Phase)]) -> String {
    let source = rows.first().map_or("", |(_, phase)| phase.source);
    let heads = ["measured", "idle"].into_iter().chain(LOADS.iter().map(|(name, ..)| *name)).chain(["others"]);
    let mut text = format!("power of the processors by {source}, in watts\n\n{:<12}", "LOAD");
    heads.for_each(|head| text.push_str(&format!("{head:>12}")));
    for (name, phase) in rows {
        text.push_str(&format!("\n{name:<12}"));
        let energies =
            [phase.measured, phase.idle].into_iter().chain(phase.loads.iter().copied()).chain([phase.others]);
        energies.for_each(|energy| text.push_str(&format!("{:>12.2}", watts(energy, phase.length))));
    }
    text + "\n\nA fair division charges a load about as much together with the other load as alone. Other tasks and a changed\nfrequency of the processor disturb the comparison.\n"
}

fn watts(energy: Microjoules, length: Duration) -> f64 {
    energy.per(length).map_or(0.0, |power| power.microwatts() as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_phase() {
        let joules = |joules: f64| Microjoules((joules * 1e6) as u64);
        let phase = |measured: f64, loads: [f64; 2]| Phase {
            source: "rapl",
            length: Duration::from_secs(5),
            measured: joules(measured),
            idle: joules(50.0),
            loads: loads.map(joules).to_vec(),
            others: joules(measured - 50.0 - loads[0] - loads[1]),
        };
        let rows = [
            ("no load", phase(50.0, [0.0; 2])),
            ("arithmetic", phase(101.0, [50.0, 0.0])),
            ("together", phase(164.5, [50.5, 63.0])),
        ];
        insta::assert_snapshot!(table(&rows));
    }
}
