//! Containers that are started again, and such that live for a moment only.

use anyhow::{Context as _, ensure};
use xtask_common::process;

use super::{
    Stage,
    containers::Container,
    history::{self, Ended, Totals},
    sidecar::SNAPSHOT,
};

/// To itself.
const DATAGRAMS: u64 = 50;
/// How long a brief container lives, in milliseconds.
const MOMENT: &str = "200";
/// How many of them, one after the other.
const BRIEF: usize = 5;

/// Every life is told, with the container that it was of.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let mut ended = again(stage).context("a container that is started again")?;
    for n in 0..BRIEF {
        let container = stage.containers.start(&format!("brief-{n}"), &["brief", &DATAGRAMS.to_string(), MOMENT])?;
        let report = stage.containers.wait_for_report(&container)?;
        ensure!(report.udp == DATAGRAMS, "{report:?} in a brief life");
        ended.push(Ended { container, report, nameless: true });
    }
    Ok(ended)
}

/// To restart a container goes on with it; so does to start it, but after its end; to run one of the same name makes
/// another.
fn again(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let role = ["alone", &DATAGRAMS.to_string()];
    let one = stage.containers.start("again", &role)?;
    stage.containers.wait_until_idle(&one)?;
    let first = now(stage, &one)?;
    stage.containers.restart(&one)?;
    let restarted = now(stage, &one)?;
    // The series goes on unless its end had been said, on a slow machine.
    let before = if restarted.start == first.start { first.received.udp } else { 0 };
    ensure!(restarted.received.udp == before + DATAGRAMS, "{first:?}, and after a restart {restarted:?}");

    stage.containers.stop(&one)?;
    stage.wait_for_ends([&one])?;
    let free = || Ok(history::container_of(&stage.sidecar.snapshot()?, &one.id)?.is_none().then_some(()));
    process::wait_for("the series to be no more", SNAPSHOT, free)?;
    stage.containers.start_again(&one)?;
    let started = now(stage, &one)?;
    ensure!(started.start > restarted.start, "it was over, and counts since before: {restarted:?}, {started:?}");
    ensure!(started.received.udp == DATAGRAMS, "{restarted:?}, and after another start {started:?}");
    let same = [&restarted, &started].iter().all(|life| life.instance == first.instance);
    ensure!(same, "the same container has another service.instance.id: {first:?}, {restarted:?}, {started:?}");
    let mut ended = stage.containers.end(vec![one])?;

    let other = stage.containers.start("again", &role)?;
    stage.containers.wait_until_idle(&other)?;
    let another = now(stage, &other)?;
    ensure!(another.instance != started.instance, "another container has the same service.instance.id");
    ensure!(
        another.start > started.start,
        "another container counts since the one before it: {started:?}, {another:?}"
    );
    let on = if before > 0 { "goes on" } else { "begins anew" };
    stage.say(&format!("a series {on} after a restart, and begins anew after its end"));
    ended.extend(stage.containers.end(vec![other])?);
    Ok(ended)
}

fn now(stage: &Stage<'_>, container: &Container) -> anyhow::Result<Totals> {
    let snapshot = stage.sidecar.snapshot()?;
    history::container_of(&snapshot, &container.id)?.and_then(history::totals).context("no figures")
}
