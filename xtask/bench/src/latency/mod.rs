//! `cargo xtask bench latency`: measures the cost of latency: of each event in nanoseconds and in instructions, relative to an empty
//! program, and of the requests of a web server. wrk loads nginx with and without the sidecar, in alternation.

mod load;
mod report;
mod server;
mod sidecar;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;
use xtask_common::{artifacts, machine, packages};

use self::{
    load::Load,
    report::Pair,
    server::Server,
    sidecar::{Observer, Sidecar},
};
use super::{
    build::{self, Profile},
    hooks,
    host::description,
};

/// Options of `cargo xtask bench latency`.
#[derive(clap::Args)]
pub struct Options {
    /// Only measure this (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Pairs of runs for each number of connections
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Seconds of one run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Connections at once (repeatable) [default: 1, 50, 500]
    #[arg(long)]
    connections: Vec<usize>,
    /// Measure under this kernel, in a virtual machine whose clock counts instructions: 6.12
    #[arg(long)]
    kernel: Option<String>,
    /// Measure every packet, however fast they come
    #[arg(long)]
    all: bool,
    /// Measure the layers of the receive path and nothing else
    #[arg(long)]
    layers: bool,
    /// Have programs in the sidecar's place that do nothing: what it takes that they are entered, and packets stamped
    #[arg(long)]
    empty: bool,
    /// The sidecar's binary [default: the release one, built first]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// What has the empty programs [default: the benchmark of hooks, built first]
    #[arg(long, hide = true)]
    stand_in: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Each program's events, on this kernel
    Events,
    /// The same in a guest whose clock counts instructions
    Instructions,
    /// A web server's requests
    Server,
}

/// Runs the selected measurements and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!("the sidecar loads programs into the kernel: run this as root");
    }
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Events) {
        hooks::run(&hooks::Options::usual(false))?;
    }
    if wanted(Part::Instructions) {
        hooks::run(&hooks::Options::usual(true))?;
    }
    if wanted(Part::Server) { server(options) } else { Ok(()) }
}

/// Measures the cost for a web server.
fn server(options: &Options) -> anyhow::Result<()> {
    packages::install(&["nginx-light", "wrk"])?;
    let binary = options.binary.clone().map_or_else(build::sidecar, Ok)?;
    let stand_in =
        if options.empty { Some(build::benchmark("hooks", Profile::Dev)?) } else { options.stand_in.clone() };
    match &options.kernel {
        Some(kernel) => in_guest(options, kernel, &binary, stand_in),
        None => here(options, &binary, stand_in),
    }
}

/// Measures the cost for a web server in a guest with one CPU and a clock that counts instructions.
fn in_guest(options: &Options, kernel: &str, binary: &Path, stand_in: Option<PathBuf>) -> anyhow::Result<()> {
    let mut guest = Command::new(artifacts::member("xtask-vm")?);
    guest.args(["vm", "--kernel", kernel, "--icount", "--timeout", "3000", "--"]);
    guest.arg(env::current_exe()?).args(["bench", "latency", "--only", "server"]);
    guest.args(["--pairs", &options.pairs.to_string()]);
    guest.args(["--seconds", &options.seconds.to_string(), "--binary"]).arg(binary);
    guest.args(options.all.then_some("--all")).args(options.layers.then_some("--layers"));
    if let Some(stand_in) = stand_in {
        guest.arg("--stand-in").arg(stand_in);
    }
    for connections in &options.connections {
        guest.args(["--connections", &connections.to_string()]);
    }
    machine::run(&mut guest)
}

fn here(options: &Options, binary: &Path, stand_in: Option<PathBuf>) -> anyhow::Result<()> {
    let (server, configuration) = (Server::start()?, sidecar::configuration(binary, options.all, options.layers)?);
    let observer = stand_in.map_or_else(|| Observer::Sidecar(binary.to_owned()), Observer::Empty);
    println!("{}", description());
    println!(
        "nginx, a file of {} bytes, wrk on one thread, {} s a run; with {observer} and without",
        server::SIZE,
        options.seconds
    );
    let connections = if options.connections.is_empty() { vec![1, 50, 500] } else { options.connections.clone() };
    print!("{}", report::head());
    for connections in connections {
        let load = Load { url: server.url(), connections, seconds: options.seconds };
        // The first run fills caches and is not measured.
        load.run()?;
        let pairs = (0..options.pairs).map(|n| pair(&load, &observer, &configuration, n % 2 == 0));
        print!("{}", report::row(connections, &pairs.collect::<anyhow::Result<Vec<_>>>()?));
    }
    Ok(())
}

/// Seconds until adaptive sampling has converged.
const ADAPTS: u64 = 3;

/// Measures a run with the sidecar and a run without, in either order.
fn pair(load: &Load, observer: &Observer, configuration: &str, with_first: bool) -> anyhow::Result<Pair> {
    let with = || {
        let sidecar = Sidecar::start(observer, configuration)?;
        // Measure after adaptive sampling has converged.
        Load { seconds: ADAPTS, ..load.clone() }.run()?;
        let measured = sidecar.share_during(|| load.run())?;
        sidecar.stop().map(|()| measured)
    };
    if with_first {
        let (with, own) = with()?;
        Ok(Pair { with, own, without: load.run()? })
    } else {
        let without = load.run()?;
        let (with, own) = with()?;
        Ok(Pair { with, own, without })
    }
}
