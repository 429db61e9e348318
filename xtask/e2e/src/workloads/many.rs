//! Many containers at once.

use std::{fs, thread, time::Instant};

use anyhow::{Context as _, ensure};

use super::{Stage, containers::Container, history::Ended};

const CONTAINERS: usize = 100;
/// The first sends itself one datagram more than this, the second two, and so on.
const DATAGRAMS: usize = 100;
/// How many are started at the same time.
const STARTERS: usize = 4;

/// Each has its own figures, under its own name.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let start = Instant::now();
    let gate = stage.containers.gate();
    let containers = start_all(stage, gate.to_str().context("the temporary folder's path is not UTF-8")?)?;
    // Which has the sidecar hear of all of them: what a container receives before, on a busy machine, stands with the node.
    stage.sidecar.snapshot()?;
    fs::write(gate, "")?;
    containers.iter().try_for_each(|container| stage.containers.wait_until_idle(container))?;
    stage.say(&format!("{CONTAINERS} containers started in {:.1?}", start.elapsed()));
    // With all of them in it.
    stage.sidecar.snapshot()?;
    let ended = stage.containers.end(containers)?;
    for (n, Ended { container, report, .. }) in ended.iter().enumerate() {
        ensure!(report.udp == datagrams(n) as u64, "{} received {report:?}, not {}", container.name, datagrams(n));
    }
    stage.say(&format!("and ended after {:.1?}", start.elapsed()));
    Ok(ended)
}

fn start_all(stage: &Stage<'_>, gate: &str) -> anyhow::Result<Vec<Container>> {
    let starter = |first: usize| {
        let mine = (first..CONTAINERS).step_by(STARTERS);
        let one = |n: usize| {
            let role = ["--after", gate, "alone", &datagrams(n).to_string()];
            stage.containers.start(&format!("many-{n}"), &role)
        };
        mine.map(|n| Ok((n, one(n)?))).collect::<anyhow::Result<Vec<_>>>()
    };
    let mut started = thread::scope(|scope| {
        let starters: Vec<_> = (0..STARTERS).map(|first| scope.spawn(move || starter(first))).collect();
        let results = starters.into_iter().map(|starter| starter.join().ok().context("a starter panicked")?);
        results.collect::<anyhow::Result<Vec<_>>>()
    })?
    .concat();
    started.sort_by_key(|(n, _)| *n);
    Ok(started.into_iter().map(|(_, container)| container).collect())
}

const fn datagrams(n: usize) -> usize {
    DATAGRAMS + 1 + n
}
