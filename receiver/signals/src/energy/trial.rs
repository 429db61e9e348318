//! The division of energy over known loads, outside of a running sidecar.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use super::{
    Settings,
    accounts::{Accounts, Amount, CpuUse},
    online,
    points::{Basis, Domain, Use},
    source::Interval,
    sources,
    zones::Zones,
};
use crate::{
    sysfs::Sysfs,
    telemetry::{Microjoules, UnixNanos, Watts},
    workloads::Slot,
};

/// The first slot of a load.
const FIRST: u16 = 2;

/// Measures phases with the sources and the division of the signal.
pub struct Trial {
    sysfs: Sysfs,
    settings: Settings,
    /// The idle power, once it is known.
    idle: Option<Watts>,
}

/// The energy of the processors in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The name of the source.
    pub source: &'static str,
    /// The time between the two readings.
    pub length: Duration,
    /// The measured energy.
    pub measured: Microjoules,
    /// The idle part.
    pub idle: Microjoules,
    /// The part of each load.
    pub loads: Vec<Microjoules>,
    /// The active part of other tasks.
    pub others: Microjoules,
}

impl Trial {
    /// Creates a trial with the settings of the signal.
    #[must_use]
    pub fn new(settings: &Settings, sysfs: Sysfs) -> Self {
        let idle = settings.idle.map(|power| power.0).or_else(|| settings.model.map(|model| model.idle()));
        Self { sysfs, settings: settings.clone(), idle }
    }

    /// Measures a phase of at least `length`. `used` returns the CPU time of each load, and last the CPU time of other tasks.
    /// Returns `None` if no source measures the processors. The first phase of a trial without an idle power determines it.
    pub fn phase(&mut self, length: Duration, used: impl Fn() -> Vec<Duration>) -> Option<Phase> {
        let (start, before, mut zones) = (Instant::now(), used(), Zones::default());
        let read = |zones: &mut Zones| zones.update(&self.sysfs.meters(), Instant::now(), UnixNanos::now());
        read(&mut zones);
        while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            let due = zones.due().map_or(left, |due| due.saturating_duration_since(Instant::now()));
            thread::sleep(left.min(due));
            read(&mut zones);
        }
        let (length, used) = (start.elapsed(), growth(&before, &used()));
        let interval = Interval { length, used: used.iter().sum(), cpus: online() };
        let sources = sources(&self.settings);
        let source = sources.iter().find(|source| source.measures(Domain::Cpu, &zones))?;
        let measured = source.energy(Domain::Cpu, &zones, &interval)?;
        let idle = match self.idle {
            Some(power) => power.over(length).min(measured),
            None => measured,
        };
        self.idle = self.idle.or_else(|| measured.per(length));
        let amount =
            Amount { domain: Domain::Cpu, origin: source.origin(), basis: Basis::CpuTime, energy: measured, idle };
        let mut accounts = Accounts::default();
        accounts.divide(amount, &uses(&used), |_| Some(UnixNanos(0)));
        let part = |slot| accounts.total(slot, Use::Compute);
        let loads = (FIRST..).take(used.len().saturating_sub(1)).map(|slot| part(Slot(slot))).collect();
        Some(Phase { source: source.origin().as_str(), length, measured, idle, loads, others: part(Slot::NODE) })
    }
}

fn growth(before: &[Duration], after: &[Duration]) -> Vec<Duration> {
    after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect()
}

/// Returns the use of each load, and of other tasks under the slot of the node.
fn uses(used: &[Duration]) -> BTreeMap<Slot, CpuUse> {
    let slots = (FIRST..).take(used.len().saturating_sub(1)).map(Slot).chain([Slot::NODE]);
    let compute = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    slots.zip(used).map(|(slot, time)| (slot, CpuUse { network: 0, compute: compute(time) })).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn phase(settings: &Settings, seconds: [u64; 3]) -> Option<Phase> {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("class")).expect("created");
        let calls = Cell::new(0);
        let used = || {
            let now = calls.replace(1);
            seconds.map(|seconds| Duration::from_secs(seconds * now)).to_vec()
        };
        Trial::new(settings, Sysfs::new(root.path().to_owned())).phase(Duration::from_millis(20), used)
    }

    #[test]
    fn loads_share_the_active_energy_by_their_cpu_time() {
        let model = Settings { model: "0W..100W".parse().ok(), ..Settings::default() };
        let Phase { source, measured, idle, loads, others, .. } = phase(&model, [3, 1, 0]).expect("a model");
        assert_eq!((source, idle, others), ("model", Microjoules(0), Microjoules(0)));
        assert_eq!(loads[0] + loads[1], measured);
        assert!(loads[0].0.abs_diff(3 * loads[1].0) <= 3, "{loads:?}");
    }

    #[test]
    fn nothing_is_charged_without_a_source() {
        assert_eq!(phase(&Settings::default(), [1, 1, 1]), None);
    }
}
