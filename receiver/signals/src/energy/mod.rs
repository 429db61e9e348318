//! `energy`: energy of the node, as measured, and divided over workloads by their CPU use.

mod accounts;
mod idle;
mod points;
mod source;
mod trial;
mod uses;
mod zones;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    accounts::{Accounts, Amount, CpuUse},
    points::{Basis, Domain, Origin},
    trial::{Phase, Trial},
};
use self::{
    idle::Idle,
    points::{DIVIDED, HARDWARE, PLATFORM},
    source::{Interval, Metered, Model, Source},
    uses::{Used, Uses},
    zones::Zones,
};
use super::{Caveat, Entry, HooksNeeded, OpenContext, OpenError, ReadError, Signal, processor};
use crate::{
    kernel::{constant::Constant, host::Host},
    options::{Power, PowerRange, Span},
    privileges::Task,
    reader::PowerMeters,
    sysfs::{Driver, Meter, Meters, Object, Unreadable},
    telemetry::{Metric, Readings, UnixNanos},
    workloads::{Slot, Workloads},
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    maps: &[&processor::USE],
    constants: |on| constants(&on.settings.energy, on.meters),
    hooks_needed: HooksNeeded::None,
    tasks: &[Task::ReadProtectedFiles],
    caveats: |settings, kernel| caveats(&settings.energy, kernel.host()),
    ..Entry::new(
        "energy",
        "Energy of processors and memory, divided over workloads by their CPU use, with the part of network events",
        &[&DIVIDED, &HARDWARE, &PLATFORM],
        open,
    )
};

/// Energy of the node, divided over workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if energy is measured.
    pub enabled: bool,
    /// Power of the idle processors, which counts for the node. The default is the lowest power within `idle_window`.
    #[schemars(with = "Power")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Power>,
    /// The time over which the lowest power of each domain counts as its idle power.
    pub idle_window: Span,
    /// The power of the processors without load and under full load, as `IDLE..FULL`. It replaces missing power meters, for
    /// example in virtual machines. Without it, nodes without power meters have no energy metrics.
    #[schemars(with = "PowerRange")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PowerRange>,
}

/// The default of `idle_window`.
const WINDOW: Duration = Duration::from_secs(600);

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, idle: None, idle_window: Span::new(WINDOW), model: None }
    }
}

/// Without a source of energy, programs need not look up the tasks that softirqs interrupt.
fn constants(settings: &Settings, meters: &Meters) -> Vec<Constant> {
    vec![Constant::flag("signal.energy", settings.enabled && has_source(settings, meters))]
}

/// Returns true if the model or a meter measures a domain.
fn has_source(settings: &Settings, meters: &Meters) -> bool {
    let measures = |meter: &Meter| matches!(meter.object, Object::Package | Object::Dram);
    settings.model.is_some() || meters.meters.iter().any(measures)
}

/// The time between two readings after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The name of the power meters in errors.
const SOURCE: &str = "power meters";

fn caveats(settings: &Settings, host: &Host) -> Vec<Caveat> {
    let meters = &host.meters.meters;
    let measures = |meter: &&Meter| meter.object == Object::Package;
    let mut caveats = Vec::new();
    for (id, error) in meters.iter().filter_map(|meter| Some((&meter.id, meter.reading.as_ref().err()?))) {
        caveats.push(Caveat::Partial(format!("{id}: {error}")));
    }
    if meters.iter().filter(measures).any(|meter| meter.reading.is_ok()) {
        return caveats;
    }
    if settings.model.is_some() {
        caveats.push(Caveat::Partial("no power meter of the processors: energy is an estimate of `model`".to_owned()));
    } else if meters.iter().any(|meter| meter.reading == Err(Unreadable::Denied)) {
        caveats.push(Caveat::Unavailable("no power meter of the processors is readable".to_owned()));
    } else if let Some(problem) = &host.meters.problem {
        caveats.push(Caveat::Unavailable(problem.clone()));
    } else {
        let advice = "set `signals.energy.model` for an estimate";
        caveats.push(Caveat::Idle(format!("no power meter of the processors: {advice}")));
    }
    caveats
}

struct Energy {
    meters: PowerMeters,
    zones: Zones,
    sources: Vec<Box<dyn Source>>,
    idle: BTreeMap<Domain, Idle>,
    uses: Uses,
    accounts: Accounts,
    /// The earliest time of the next reading after a failure.
    retry: Option<Instant>,
    /// The time of the previous division.
    divided: Instant,
}

fn open(opening: &OpenContext<'_>) -> Result<Box<dyn Signal>, OpenError> {
    let settings = &opening.settings.energy;
    let idle = |domain: Domain| {
        // The setting is the power of the processors.
        let fixed = settings.idle.filter(|_| domain == Domain::Cpu).map(|power| power.0);
        (domain, Idle::new(fixed, settings.idle_window.get()))
    };
    let mut energy = Energy {
        meters: opening.meters.clone(),
        zones: Zones::default(),
        sources: sources(settings),
        idle: Domain::ALL.map(idle).into(),
        uses: Uses::open(opening)?,
        accounts: Accounts::default(),
        retry: None,
        divided: Instant::now(),
    };
    energy.read_meters(opening.start)?;
    energy.uses.advance(opening.workloads)?;
    Ok(Box::new(energy))
}

/// Returns the sources, the most exact first.
fn sources(settings: &Settings) -> Vec<Box<dyn Source>> {
    let metered: [Box<dyn Source>; 2] = [Box::new(Metered(Driver::Rapl)), Box::new(Metered(Driver::Hwmon))];
    let model = settings.model.map(|range| Box::new(Model(range)) as Box<dyn Source>);
    metered.into_iter().chain(model).collect()
}

/// Returns true if a source measures a domain.
fn measure_any(sources: &[Box<dyn Source>], zones: &Zones) -> bool {
    Domain::ALL.into_iter().any(|domain| sources.iter().any(|source| source.measures(domain, zones)))
}

/// Returns the number of online CPUs; zero if it is unknown.
fn online() -> usize {
    aya::util::online_cpus().map_or(0, |cpus| cpus.len())
}

impl Energy {
    /// Reads every meter.
    fn read_meters(&mut self, time: UnixNanos) -> Result<(), ReadError> {
        self.retry = Some(Instant::now() + RETRY);
        let meters = self.meters.read().map_err(|source| ReadError { what: SOURCE, source })?;
        self.retry = None;
        self.zones.update(&meters, Instant::now(), time);
        Ok(())
    }

    /// Divides the energy since the previous division.
    fn divide(&mut self, used: &Used, workloads: &Workloads) {
        let now = Instant::now();
        let length = now.saturating_duration_since(self.divided);
        let interval = Interval { length, used: used.time, cpus: online() };
        self.divided = now;
        for domain in Domain::ALL {
            let Some(source) = self.sources.iter().find(|source| source.measures(domain, &self.zones)) else {
                continue;
            };
            let Some(energy) = source.energy(domain, &self.zones, &interval) else { continue };
            let idle = match (source.idle(domain), self.idle.get_mut(&domain)) {
                (Some(power), _) => power.over(length).min(energy),
                (None, Some(idle)) => idle.part(energy, length, now),
                (None, None) => continue,
            };
            let amount = Amount { domain, origin: source.origin(), basis: used.basis, energy, idle };
            self.accounts.divide(amount, &used.slots, |slot| workloads.start(slot));
        }
        self.zones.take();
    }
}

impl Signal for Energy {
    fn forget(&mut self, slot: Slot) {
        self.uses.forget(slot);
    }

    fn read(&mut self, workloads: &Workloads, readings: &mut Readings) -> Result<(), ReadError> {
        self.read_meters(UnixNanos::now())?;
        self.accounts.retain(|slot| workloads.start(slot));
        if measure_any(&self.sources, &self.zones) {
            let used = self.uses.advance(workloads)?;
            self.divide(&used, workloads);
        } else {
            // A meter that appears has no growth at its first reading, at which the CPU use starts again.
            self.divided = Instant::now();
            self.zones.take();
        }
        for (slot, points) in self.accounts.points() {
            readings.add(slot, Metric { descriptor: &DIVIDED, points });
        }
        self.zones.metrics().into_iter().for_each(|metric| readings.add(Slot::NODE, metric));
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        Some(self.zones.due()?.max(self.retry.unwrap_or(self.divided)))
    }

    fn sample(&mut self) {
        if let Err(error) = self.read_meters(UnixNanos::now()) {
            tracing::warn!("{error}; the next reading contains this energy");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::Sysfs;

    /// Returns the zones of a tree with one zone of RAPL, or none.
    fn zones(name: Option<&str>) -> Zones {
        let root = tempfile::tempdir().expect("a folder");
        if let Some(name) = name {
            let zone = root.path().join("class/powercap/intel-rapl:0");
            std::fs::create_dir_all(&zone).expect("created");
            for (file, text) in [("name", name), ("energy_uj", "5"), ("max_energy_range_uj", "262143328850")] {
                std::fs::write(zone.join(file), text).expect("written");
            }
        }
        let mut zones = Zones::default();
        zones.update(&Sysfs::new(root.path().to_owned()).meters(), Instant::now(), UnixNanos(1));
        zones
    }

    #[test]
    fn cpu_use_is_needed_only_with_a_source_of_a_domain() {
        let metered = sources(&Settings::default());
        let measure = |name| measure_any(&metered, &zones(name));
        assert_eq!([None, Some("psys"), Some("package-0")].map(measure), [false, false, true]);
        let model = Settings { model: "10W..50W".parse().ok(), ..Settings::default() };
        assert!(measure_any(&sources(&model), &zones(None)));
    }
}
