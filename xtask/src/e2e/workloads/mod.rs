//! Containers of a real Docker engine, whose traffic and CPU time are told apart under their own names.

mod busy;
mod containers;
mod exchange;
mod history;
mod lives;
mod many;
pub mod peer;
mod sidecar;

use std::{path::Path, time::Instant};

use anyhow::{Context as _, ensure};

use self::{
    containers::{Container, Containers},
    history::Ended,
    sidecar::Sidecar,
};
use super::{
    docker::{Cgroups, Engine},
    invariants, require_root,
};
use crate::{
    collector::{otlp::Request, running::Collector},
    test::Tally,
};

/// Runs the scenario with every kind of cgroups that this host has.
pub fn run(sidecar: &Path) -> anyhow::Result<Tally> {
    require_root()?;
    let mut tally = Tally::default();
    for cgroups in [Cgroups::Unified, Cgroups::Hybrid] {
        if !cgroups.exist() {
            tally = tally.and_skipped(format!("e2e workloads, {cgroups}: this host has none"));
            continue;
        }
        let start = Instant::now();
        match with(cgroups, sidecar) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                println!("e2e workloads, {cgroups}: {error:#}");
                tally.failed += 1;
            }
        }
        println!("e2e workloads, {cgroups}: took {:.1?}", start.elapsed());
    }
    Ok(tally)
}

/// What the parts of the scenario work with.
struct Stage<'a> {
    cgroups: Cgroups,
    engine: &'a Engine,
    sidecar: &'a Sidecar,
    containers: &'a Containers<'a>,
}

impl Stage<'_> {
    /// Says a figure.
    fn say(&self, what: &str) {
        println!("e2e workloads, {}: {what}", self.cgroups);
    }

    /// Waits until the sidecar has said last of each of these containers that it is over.
    fn wait_for_ends<'a>(&self, containers: impl IntoIterator<Item = &'a Container>) -> anyhow::Result<()> {
        for Container { name, id, .. } in containers {
            let last = |requests: &[Request]| {
                requests.iter().rev().find_map(|r| history::resource(r, id).ok()?.map(history::is_over))
            };
            let over = |requests: &[Request]| last(requests).filter(|over| *over).map(drop);
            self.sidecar.wait_for(&format!("the end of {name}"), over)?;
        }
        Ok(())
    }
}

fn with(cgroups: Cgroups, binary: &Path) -> anyhow::Result<()> {
    let engine = Engine::start(cgroups)?;
    let collector = Collector::start()?;
    let containers = Containers::new(&engine)?;
    let sidecar = Sidecar::start(binary, cgroups, &engine, &collector)?;
    let stage = Stage { cgroups, engine: &engine, sidecar: &sidecar, containers: &containers };
    let mut ended = exchange::run(&stage).context("traffic")?;
    ended.extend(busy::run(&stage).context("CPU time")?);
    ended.extend(lives::run(&stage).context("short and repeated lives")?);
    ended.extend(many::run(&stage).context("many containers")?);
    stage.wait_for_ends(ended.iter().map(|one| &one.container))?;
    let log = sidecar.log();
    let written = sidecar.stop()?;
    let collected = collector.stop()?;
    let named = check(&written, &collected, &ended).with_context(|| format!("the sidecar logged:\n{log}"))?;
    println!("e2e workloads, {cgroups}: {} containers hold, {named} of them by name", ended.len());
    engine.stop()
}

/// What holds of all containers that have ended, in what the sidecar wrote and in what the collector took. Yields of how
/// many the names are known.
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
