//! Containers that are restarted, and containers with a short life.

use anyhow::{Context as _, ensure};
use xtask_common::process;

use super::{
    Stage,
    containers::{Container, Ended},
    history::{self, Totals},
    sidecar::SNAPSHOT,
};

/// Number of datagrams that a container sends to its own socket.
const DATAGRAMS: u64 = 50;
/// Lifetime of a brief container in milliseconds.
const MOMENT: &str = "200";
/// Number of brief containers, one after another.
const BRIEF: usize = 5;

/// Checks that every run of a container is attributed to that container.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let mut ended = again(stage).context("a restarted container")?;
    for n in 0..BRIEF {
        let container = stage.containers.start(&format!("brief-{n}"), &["brief", &DATAGRAMS.to_string(), MOMENT])?;
        let report = stage.containers.wait_for_report(&container)?;
        ensure!(report.udp == DATAGRAMS, "{report:?} in a brief life");
        ended.push(Ended { container, report, nameless: true });
    }
    Ok(ended)
}

/// A restart continues the series of a container. A start after the end begins new series of that container. A new container with an
/// equal name is another resource.
fn again(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let role = ["alone", &DATAGRAMS.to_string()];
    let one = stage.containers.start("again", &role)?;
    stage.containers.wait_until_idle(&one)?;
    let first = now(stage, &one)?;
    stage.containers.restart(&one)?;
    let restarted = now(stage, &one)?;
    // The series continues unless the sidecar exported its end first, on a slow machine.
    let before = if restarted.start == first.start { first.received.udp } else { 0 };
    ensure!(restarted.received.udp == before + DATAGRAMS, "{first:?}, and after a restart {restarted:?}");

    stage.containers.stop(&one)?;
    stage.wait_for_ends([&one])?;
    let free = || Ok(history::container_of(&stage.sidecar.snapshot()?, &one.id)?.is_none().then_some(()));
    process::wait_for("the removal of the series", SNAPSHOT, free)?;
    stage.containers.start_again(&one)?;
    let started = now(stage, &one)?;
    ensure!(
        started.start > restarted.start,
        "the new series starts before the end of the old one: {restarted:?}, {started:?}"
    );
    ensure!(started.received.udp == DATAGRAMS, "{restarted:?}, and after another start {started:?}");
    let same = [&restarted, &started].iter().all(|life| life.instance == first.instance);
    ensure!(same, "the container's service.instance.id changed: {first:?}, {restarted:?}, {started:?}");
    let mut ended = stage.containers.end(vec![one])?;

    let other = stage.containers.start("again", &role)?;
    stage.containers.wait_until_idle(&other)?;
    let another = now(stage, &other)?;
    ensure!(another.instance != started.instance, "two containers have one service.instance.id");
    ensure!(
        another.start > started.start,
        "a new container has the start of the previous one: {started:?}, {another:?}"
    );
    let restart = if before > 0 { "continues" } else { "starts again" };
    stage.report(&format!("a series {restart} after a restart, and starts again after its end"));
    ended.extend(stage.containers.end(vec![other])?);
    Ok(ended)
}

fn now(stage: &Stage<'_>, container: &Container) -> anyhow::Result<Totals> {
    let snapshot = stage.sidecar.snapshot()?;
    history::container_of(&snapshot, &container.id)?.and_then(history::totals).context("no measurements")
}
