//! Attribution of CPU time to a busy container and an idle one.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use xtask_common::process;

use super::{
    Stage,
    containers::{Container, Ended},
    history,
};
use xtask_e2e::collector::otlp::Request;

/// CPU time of the busy container before the check, in seconds.
const BUSY: f64 = 1.0;
/// Timeout for the use of [`BUSY`] on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum difference from the kernel's file of a CPU time, in seconds: cgroup v2 updates its file once per tick, and softirq time
/// moves to the receivers of packets.
const LAG: f64 = 0.05;

/// Compares the CPU time that the sidecar exports with the accounting of the containers' cgroups.
pub fn run(stage: &Stage<'_>) -> anyhow::Result<Vec<Ended>> {
    let idle = stage.containers.start("idle", &["alone", "10"])?;
    stage.containers.wait_until_idle(&idle)?;
    let busy = stage.containers.start("busy", &["busy"])?;
    let enough = || Ok((stage.cpu_time(&busy)? >= BUSY).then_some(()));
    process::wait_for("the busy container to use CPU time", PATIENCE, enough)?;

    let both = [&idle, &busy];
    let least = both.map(|container| stage.cpu_time(container));
    let snapshot = stage.sidecar.snapshot()?;
    let most = both.map(|container| stage.cpu_time(container));
    let mut found = Vec::new();
    for ((container, least), most) in both.into_iter().zip(least).zip(most) {
        let (least, most, cpu) = (least?, most?, cpu_time(&snapshot, container)?);
        stage.report(&format!("{} used {cpu:.3} s; its cgroup reports {least:.3} s to {most:.3} s", container.name));
        ensure!(
            cpu >= least - LAG && cpu <= most + LAG,
            "{} used {least} s to {most} s of CPU time, the sidecar exported {cpu} s",
            container.name
        );
        found.push(cpu);
    }
    ensure!(found[0] < found[1], "the idle container used {} s, the busy one {} s", found[0], found[1]);
    stage.containers.end(vec![idle, busy])
}

fn cpu_time(snapshot: &Request, container: &Container) -> anyhow::Result<f64> {
    let of = history::container_of(snapshot, &container.id)?;
    of.and_then(history::cpu_time).with_context(|| format!("no CPU time of the container {}", container.name))
}
