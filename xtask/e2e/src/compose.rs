//! examples/docker-compose, brought up by a real Docker engine, until the collector holds what the sidecar measured.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use xtask_common::{machine, process};

use super::{
    engines::{Cgroups, Client, Docker, images},
    expected, require_root,
};
use xtask_e2e::collector::otlp::Request;

/// Longer than two intervals of the example and the start of everything.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many packets the example's client and server must have made between two requests, five seconds apart: they
/// exchange fifty times a second, two datagrams and more segments each.
const FEWEST_PACKETS: u64 = 250;

/// Brings the example up, waits for two requests of the sidecar's in the collector's output, and takes it down.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let engine = Docker::start(Cgroups::Unified)?;
    check_files(&engine)?;
    images::provide(&engine, sidecar)?;
    let took = watch(&engine)?;
    engine.end()?;
    println!("e2e compose: the example's collector held two requests of the sidecar's after {took:.1?}");
    Ok(())
}

/// Brings the example up and down again, and returns how long the metrics took to arrive.
fn watch(engine: &Docker) -> anyhow::Result<Duration> {
    let stack = Stack::build(engine)?;
    let start = Instant::now();
    let seen = stack.up().and_then(|()| {
        let metrics =
            process::wait_for("the sidecar's metrics in the collector's output", PATIENCE, || stack.metrics());
        metrics.and_then(|(first, last)| check(&first, &last))
    });
    seen.with_context(|| format!("the containers logged:\n{}", stack.logs()))?;
    let took = start.elapsed();
    stack.down()?;
    Ok(took)
}

/// Both ways of granting privileges are files that compose accepts, also the one that this host may not allow.
fn check_files(engine: &Docker) -> anyhow::Result<()> {
    for privileges in ["docker-compose.override.yaml", RESTRICTED] {
        machine::output(compose(engine, privileges).args(["config", "--quiet"]))?;
    }
    Ok(())
}

/// Two requests of the sidecar's must be sound, and show the traffic between the client and the server.
fn check(first: &Request, last: &Request) -> anyhow::Result<()> {
    expected::node(last)?;
    expected::softirq_time(last)?;
    for transport in ["tcp", "udp"] {
        let packets = expected::received(last, transport)?.saturating_sub(expected::received(first, transport)?);
        ensure!(
            packets >= FEWEST_PACKETS,
            "{packets} packets of {transport} were timed, {FEWEST_PACKETS} or more were made"
        );
    }
    Ok(())
}

/// The privileges that every host can grant on which this test runs, among them those without CAP_SYS_RESOURCE.
const RESTRICTED: &str = "docker-compose.restricted.yaml";

fn folder() -> PathBuf {
    machine::workspace().join("examples/docker-compose")
}

fn compose(engine: &Docker, privileges: &str) -> Command {
    let mut command = engine.compose();
    command.args(["--project-name", "undercurrent-e2e"]);
    for file in ["docker-compose.yaml", privileges] {
        command.arg("--file").arg(folder().join(file));
    }
    command
}

/// The example's containers. They end with the engine, if not before.
struct Stack<'a> {
    engine: &'a Docker,
    output: tempfile::TempDir,
}

impl<'a> Stack<'a> {
    /// Builds the sidecar's image by the example's own Dockerfile.
    fn build(engine: &'a Docker) -> anyhow::Result<Self> {
        let stack = Self { engine, output: tempfile::tempdir().context("cannot make a folder for the collector")? };
        machine::output(stack.compose().arg("build")).context("the example's image does not build")?;
        Ok(stack)
    }

    fn up(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["up", "--detach", "--no-build"]))
            .context("the example does not come up")?;
        Ok(())
    }

    fn compose(&self) -> Command {
        let mut command = compose(self.engine, RESTRICTED);
        command.env("OUTPUT", self.output.path());
        command
    }

    /// The first and the last request of the sidecar's that the collector wrote, once there are two.
    fn metrics(&self) -> anyhow::Result<Option<(Request, Request)>> {
        let file = self.output.path().join("metrics.jsonl");
        if !file.exists() {
            return Ok(None);
        }
        let mut requests: Vec<_> =
            Request::read_all(&file)?.into_iter().filter(|request| expected::node(request).is_ok()).collect();
        let last = requests.pop();
        Ok(requests.into_iter().next().zip(last))
    }

    fn logs(&self) -> String {
        machine::output(self.compose().args(["logs", "--no-color"])).unwrap_or_else(|error| format!("none: {error:#}"))
    }

    fn down(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["down", "--volumes", "--timeout", "5"]))?;
        Ok(())
    }
}
