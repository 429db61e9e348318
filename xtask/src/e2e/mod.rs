//! `cargo xtask e2e`: the sidecar's own binary with the real programs it works with.

pub mod collector;
pub mod compose;
mod engines;
mod expected;
mod invariants;
pub mod traffic;
pub mod workloads;

use std::path::PathBuf;

use anyhow::{bail, ensure};

use crate::machine;

/// The options of `cargo xtask e2e`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
    /// The sidecar's binary; the one that this checkout last built, release before debug, by default.
    #[arg(long, global = true)]
    sidecar: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Scenario {
    /// The sidecar sends to a collector on loopback; what the collector wrote is checked.
    Collector,
    /// examples/docker-compose with a real Docker engine of its own; what its collector wrote is checked.
    Compose,
    /// Containers of real engines of its own, with cgroup v2 and where there is one with v1; whose the traffic and the CPU
    /// time are is checked.
    Workloads(workloads::Options),
    /// What runs in those containers.
    #[command(hide = true)]
    Peer(workloads::peer::Arguments),
}

/// Runs one scenario.
pub fn command(arguments: Arguments) -> anyhow::Result<()> {
    if let Scenario::Peer(arguments) = &arguments.scenario {
        return workloads::peer::run(arguments);
    }
    let sidecar = match arguments.sidecar {
        Some(path) => {
            path.canonicalize().map_err(|error| anyhow::anyhow!("no sidecar at {}: {error}", path.display()))?
        }
        None => built_sidecar()?,
    };
    match arguments.scenario {
        Scenario::Collector => collector::run(&sidecar),
        Scenario::Compose => compose::run(&sidecar),
        Scenario::Workloads(options) => workloads::run(&sidecar, &options).and_then(|tally| {
            tally.skipped.iter().for_each(|reason| println!("SKIPPED: {reason}"));
            ensure!(tally.failed == 0, "{} of its runs failed", tally.failed);
            Ok(())
        }),
        Scenario::Peer(_) => Ok(()),
    }
}

/// The sidecar that this checkout last built, release before debug.
pub fn built_sidecar() -> anyhow::Result<PathBuf> {
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

/// An error unless this is root: the sidecar loads programs into the kernel.
fn require_root() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("this loads programs into the kernel: run it as root");
    }
    Ok(())
}
