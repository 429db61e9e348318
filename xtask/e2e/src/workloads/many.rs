//! Many containers at once.

use std::{fs, thread, time::Instant};

use anyhow::{Context as _, ensure};

use super::{
    Stage,
    containers::{Container, Ended},
};

const CONTAINERS: usize = 100;
/// Container number n sends n + 1 datagrams more than this to its own socket.
const DATAGRAMS: usize = 100;
/// Number of threads that start containers.
const STARTERS: usize = 4;

/// Checks that each container has correct measurements and names.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let start = Instant::now();
    let gate = stage.containers.gate();
    let containers = start_all(stage, gate.to_str().context("the temporary folder's path is not UTF-8")?)?;
    // After a snapshot, the sidecar knows all containers. On a busy machine it attributes earlier packets to the node.
    stage.sidecar.snapshot()?;
    fs::write(gate, "")?;
    containers.iter().try_for_each(|container| stage.containers.wait_until_idle(container))?;
    stage.report(&format!("{CONTAINERS} containers started in {:.1?}", start.elapsed()));
    // A snapshot that includes all containers.
    stage.sidecar.snapshot()?;
    let ended = stage.containers.end(containers)?;
    for (n, Ended { container, report, .. }) in ended.iter().enumerate() {
        ensure!(report.udp == datagrams(n) as u64, "{} received {report:?}, not {}", container.name, datagrams(n));
    }
    stage.report(&format!("and ended after {:.1?}", start.elapsed()));
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
