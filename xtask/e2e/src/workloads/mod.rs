//! Runs containers of real engines and checks the attribution of their traffic and CPU time.

mod busy;
pub mod containers;
mod exchange;
mod history;
mod lives;
mod many;
pub mod peer;
pub mod sidecar;

use std::{fmt, path::Path, time::Instant};

use anyhow::{Context as _, ensure};
use clap::builder::PossibleValuesParser;
use xtask_common::tally::{Tally, Timing};
use xtask_e2e::collector::{otlp::Request, running::Collector};

use self::{
    containers::{Container, Containers, Ended},
    sidecar::Sidecar,
};
use super::{
    engines::{Cgroups, Engine, KINDS, Kind},
    invariants, require_root,
};

/// The options of `cargo xtask e2e workloads`.
#[derive(Default, clap::Args)]
pub struct Options {
    /// Only with this engine; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(KINDS.iter().map(|kind| kind.name)))]
    engine: Vec<String>,
}

/// Runs the scenario with every kind of engine, and with every kind of cgroups on this host.
pub fn run(sidecar: &Path, options: &Options) -> anyhow::Result<Tally> {
    require_root()?;
    let mut tally = Tally::default();
    let chosen = |kind: &&Kind| options.engine.is_empty() || options.engine.iter().any(|name| name == kind.name);
    let settings = |kind| [Cgroups::Unified, Cgroups::Hybrid].map(|cgroups| Setting { kind, cgroups });
    for setting in KINDS.iter().filter(chosen).flat_map(settings) {
        if !setting.cgroups.exist() {
            tally = tally.and_skipped(format!("{setting}: this host does not have these cgroups"));
            continue;
        }
        let start = Instant::now();
        match run_with(setting, sidecar) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                println!("{setting}: {error:#}");
                tally.failed += 1;
            }
        }
        tally.timings.push(Timing { test: setting.to_string(), took: start.elapsed() });
    }
    Ok(tally)
}

/// The engine and the cgroups of a run.
#[derive(Clone, Copy)]
struct Setting {
    kind: &'static Kind,
    cgroups: Cgroups,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e2e workloads, {}, {}", self.kind.name, self.cgroups)
    }
}

/// Environment of the parts of the scenario.
struct Stage<'a> {
    setting: Setting,
    engine: &'a dyn Engine,
    sidecar: &'a Sidecar,
    containers: &'a Containers<'a>,
}

impl Stage<'_> {
    /// Prints a figure.
    fn report(&self, figure: &str) {
        println!("{}: {figure}", self.setting);
    }

    /// Returns the CPU time of a container in seconds, from its cgroup.
    fn cpu_time(&self, container: &Container) -> anyhow::Result<f64> {
        self.setting.cgroups.cpu_time(&self.engine.cgroup(&container.id))
    }

    /// Waits until the sidecar's last request about each of these containers marks the end.
    fn wait_for_ends<'a>(&self, containers: impl IntoIterator<Item = &'a Container>) -> anyhow::Result<()> {
        for Container { name, id, .. } in containers {
            let last = |requests: &[Request]| {
                requests.iter().rev().find_map(|r| history::container_of(r, id).ok()?.map(history::is_over))
            };
            let over = |requests: &[Request]| last(requests).filter(|over| *over).map(drop);
            self.sidecar.wait_for(&format!("the end of {name}"), over)?;
        }
        Ok(())
    }
}

fn run_with(setting: Setting, binary: &Path) -> anyhow::Result<()> {
    let engine = (setting.kind.start)(setting.cgroups)?;
    let collector = Collector::start()?;
    let containers = Containers::new(&*engine)?;
    let sidecar = Sidecar::start(binary, setting.cgroups, &engine.daemon().folder().socket(), &collector, &[])?;
    let stage = Stage { setting, engine: &*engine, sidecar: &sidecar, containers: &containers };
    let mut ended = exchange::run(&stage).context("traffic")?;
    ended.extend(busy::run(&stage).context("CPU time")?);
    ended.extend(lives::run(&stage).context("short and repeated lives")?);
    ended.extend(many::run(&stage).context("many containers")?);
    stage.wait_for_ends(ended.iter().map(|one| &one.container))?;
    let log = sidecar.log();
    let written = sidecar.stop()?;
    let collected = collector.stop()?;
    let lost = written.iter().rev().find_map(history::node).map(history::lost);
    let named = check(&written, &collected, &ended)
        .with_context(|| format!("the sidecar counted the losses {lost:?} and logged:\n{log}"))?;
    println!("{setting}: {} containers are correct, {named} of them with names", ended.len());
    engine.end()
}

/// Checks the measurements of all ended containers, in the sidecar's file and at the collector. Returns the number of containers with
/// known names.
fn check(written: &[Request], collected: &[Request], ended: &[Ended]) -> anyhow::Result<usize> {
    invariants::check(written).context("in the file")?;
    invariants::check(collected).context("at the collector")?;
    let mut known = 0;
    for one in ended {
        let (last, named) = one.check(written)?;
        known += usize::from(named);
        let arrived = history::last(collected, &one.container.id)?;
        ensure!(arrived.as_ref() == Some(&last), "{last:?} was written, {arrived:?} arrived at the collector");
    }
    Ok(known)
}
