//! `cargo xtask e2e` runs the sidecar's binary with the programs that users combine it with. `cargo xtask collector` builds the
//! collector for these tests.

mod chart;
mod compose;
mod dashboards;
mod delivery;
mod engines;
mod expected;
mod gateway;
mod invariants;
mod meters;
mod outage;
mod picture;
mod queries;
mod receiver;
mod scrape;
mod traces;
mod workloads;

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use xtask_common::{about, machine, tally::Tally};
use xtask_e2e::collector;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::COLLECTOR)]
    Collector(collector::Arguments),
    #[command(about = about::E2E)]
    E2e(Arguments),
}

/// The options of `cargo xtask e2e`.
#[derive(clap::Args)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
    /// The sidecar's binary; the one that this checkout last built, release before debug, by default.
    #[arg(long, global = true)]
    sidecar: Option<PathBuf>,
    /// Write the tally to this file
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    tally: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Scenario {
    /// The sidecar sends to a collector on loopback; what the collector wrote is checked.
    Collector,
    /// The Helm chart has the objects of examples/kubernetes, and refuses wrong values.
    Chart,
    /// examples/docker-compose with a real Docker engine of its own; what its collector wrote is checked.
    Compose,
    /// Two replicas of otel-config/gateway.yaml keep the traces with slow packets, add names of Kubernetes and drop internal series.
    Gateway,
    /// A collector of the official builder starts the sidecar as its receiver, and its output is checked.
    Receiver,
    /// The dashboards have Grafana's schema, and the rules for Prometheus pass their tests.
    Dashboards,
    /// The sidecar's metrics arrive in Prometheus through a collector, and every query of docs/prometheus.md and of the
    /// dashboards is run.
    Prometheus(queries::Options),
    /// Prometheus scrapes the sidecar in each format, and has the series of a Prometheus that receives OTLP.
    Scrape,
    /// Slow requests over HTTP/1 and gRPC of programs with OpenTelemetry's SDK, and slow datagrams, in two network namespaces, have the spans
    /// of their packets in Jaeger.
    Traces,
    /// Containers of real engines of its own, with cgroup v2 and where there is one with v1; whose the traffic and the CPU
    /// time are is checked.
    Workloads(workloads::Options),
    /// The collector is down for an hour. The received growth adds up to the totals, and the memory of the sidecar does not grow.
    Outage(outage::Options),
    /// Runs examples/docker-compose, and draws the live table, a dashboard and a trace as SVG into a folder. Writes the table of a host
    /// without containers into a page. `cargo xtask docs --picture` does so for the documentation.
    Picture { folder: PathBuf, page: PathBuf },
    /// The program in the containers.
    #[command(hide = true)]
    Peer(workloads::peer::Arguments),
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    match Command::parse() {
        Command::Collector(arguments) => collector::command(&arguments),
        Command::E2e(Arguments { scenario: Scenario::Peer(peer), .. }) => workloads::peer::run(&peer),
        Command::E2e(arguments) => run(arguments),
    }
}

/// Runs one scenario.
fn run(arguments: Arguments) -> anyhow::Result<()> {
    let sidecar = match arguments.sidecar {
        Some(path) => path.canonicalize().with_context(|| format!("no sidecar at {}", path.display()))?,
        None => built_sidecar()?,
    };
    let tally = match arguments.scenario {
        Scenario::Collector => delivery::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Chart => chart::run().map(|()| Tally::passed(1)),
        Scenario::Compose => compose::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Gateway => gateway::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Receiver => receiver::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Dashboards => dashboards::check().map(|()| Tally::passed(1)),
        Scenario::Prometheus(options) => queries::run(&sidecar, &options).map(|()| Tally::passed(1)),
        Scenario::Scrape => scrape::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Traces => traces::run(&sidecar).map(|()| Tally::passed(1)),
        Scenario::Workloads(options) => workloads::run(&sidecar, &options),
        Scenario::Outage(options) => outage::run(&sidecar, &options).map(|()| Tally::passed(1)),
        Scenario::Picture { folder, page } => picture::draw(&sidecar, &folder)
            .and_then(|()| picture::sample::write(&sidecar, &page))
            .map(|()| Tally::passed(1)),
        Scenario::Peer(_) => Ok(Tally::default()),
    }?;
    if let Some(file) = arguments.tally {
        return tally.write(&file);
    }
    tally.skipped.iter().for_each(|reason| println!("SKIPPED: {reason}"));
    ensure!(tally.failed == 0, "{} runs failed", tally.failed);
    Ok(())
}

/// Returns the sidecar that this checkout last built: a release build if there is one, else a debug build.
fn built_sidecar() -> anyhow::Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| machine::workspace().join("target"), PathBuf::from);
    for profile in ["release", "debug"] {
        let path = target.join(profile).join("undercurrent");
        if path.is_file() {
            return Ok(path.canonicalize()?);
        }
    }
    bail!("no sidecar is built in {}: run `cargo build --package undercurrent` first", target.display());
}

/// Returns an error unless this process runs as root: the sidecar loads programs into the kernel.
fn require_root() -> anyhow::Result<()> {
    ensure!(machine::is_root(), "this loads programs into the kernel: run it as root");
    Ok(())
}
