//! What the sidecar costs a server: nginx or Redis under load, with and without the sidecar, in alternation.

mod load;
mod redis;
mod report;
mod server;
mod sidecar;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::ValueEnum as _;
use xtask_common::{artifacts, machine, packages};

pub use self::sidecar::Configuration;
use self::{
    load::{Load, Service},
    redis::Redis,
    report::Pair,
    server::Server,
    sidecar::{Observer, Sidecar},
};
use super::{
    build::{self, Profile},
    host::description,
};

/// A server under load.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// nginx under wrk.
    Nginx,
    /// Redis under redis-benchmark.
    Redis,
}

impl Kind {
    /// Returns the packages of Debian with the server and its load.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["nginx-light", "wrk"],
            Self::Redis => &["redis-server", "redis-tools"],
        }
    }

    fn start(self) -> anyhow::Result<Box<dyn Service>> {
        Ok(match self {
            Self::Nginx => Box::new(Server::start()?),
            Self::Redis => Box::new(Redis::start()?),
        })
    }
}

/// Options of the comparison.
#[derive(clap::Args)]
pub struct Comparison {
    /// The server under load
    #[arg(long, value_enum, default_value = "nginx")]
    service: Kind,
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
    /// Have programs in the sidecar's place that do nothing: what it takes that they are entered, and packets stamped
    #[arg(long)]
    empty: bool,
    /// The sidecar's binary [default: the release one, built first]
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Comparison {
    /// Returns the kernel of the guest.
    pub fn kernel(&self) -> Option<&str> {
        self.kernel.as_deref()
    }
}

/// Options of the comparison inside of a guest.
#[derive(clap::Args)]
pub struct InGuest {
    #[command(flatten)]
    options: Comparison,
    /// Configurations of the sidecar, as JSON (repeatable)
    #[arg(long, value_parser = parse)]
    configuration: Vec<Configuration>,
    /// What has the empty programs
    #[arg(long)]
    stand_in: Option<PathBuf>,
}

fn parse(text: &str) -> serde_json::Result<Configuration> {
    serde_json::from_str(text)
}

/// Measures the cost of each configuration for a server.
pub fn run(options: &Comparison, configurations: &[Configuration]) -> anyhow::Result<()> {
    packages::install(options.service.packages())?;
    let binary = options.binary.clone().map_or_else(build::sidecar, Ok)?;
    let stand_in = options.empty.then(|| build::benchmark("hooks", Profile::Dev)).transpose()?;
    match &options.kernel {
        Some(kernel) => start_guest(options, kernel, &binary, stand_in, configurations),
        None => run_natively(options, &binary, stand_in, configurations),
    }
}

/// Measures the cost inside of a guest, with one CPU and a clock that counts instructions.
pub fn run_in_guest(options: &InGuest) -> anyhow::Result<()> {
    let InGuest { options, configuration, stand_in } = options;
    let binary = options.binary.clone().map_or_else(build::sidecar, Ok)?;
    run_natively(options, &binary, stand_in.clone(), configuration)
}

fn start_guest(
    options: &Comparison,
    kernel: &str,
    binary: &Path,
    stand_in: Option<PathBuf>,
    configurations: &[Configuration],
) -> anyhow::Result<()> {
    let mut guest = Command::new(artifacts::member("xtask-vm")?);
    guest.args(["vm", "--kernel", kernel, "--icount", "--timeout", "3000", "--"]);
    guest.arg(env::current_exe()?).args(["bench", "web", "--pairs", &options.pairs.to_string()]);
    let service = options.service.to_possible_value().context("a server without a name")?;
    guest.args(["--service", service.get_name()]);
    guest.args(["--seconds", &options.seconds.to_string(), "--binary"]).arg(binary);
    for configuration in configurations {
        guest.args(["--configuration", &serde_json::to_string(configuration)?]);
    }
    if let Some(stand_in) = stand_in {
        guest.arg("--stand-in").arg(stand_in);
    }
    for connections in &options.connections {
        guest.args(["--connections", &connections.to_string()]);
    }
    machine::run(&mut guest)
}

fn run_natively(
    options: &Comparison,
    binary: &Path,
    stand_in: Option<PathBuf>,
    configurations: &[Configuration],
) -> anyhow::Result<()> {
    let service = options.service.start()?;
    let observer = stand_in.map_or_else(|| Observer::Sidecar(binary.to_owned()), Observer::Empty);
    println!("{}", description());
    println!("{}, {} s a run; with {observer} and without", service.describe(), options.seconds);
    let connections = if options.connections.is_empty() { vec![1, 50, 500] } else { options.connections.clone() };
    for configuration in configurations {
        println!("\n{}", configuration.name);
        print!("{}", report::head());
        let text = configuration.render(binary)?;
        for &connections in &connections {
            let load = Load { service: &*service, connections, seconds: options.seconds };
            // The first run fills caches and is not measured.
            load.run()?;
            let pairs = (0..options.pairs).map(|n| pair(&load, &observer, &text, n % 2 == 0));
            print!("{}", report::row(connections, &pairs.collect::<anyhow::Result<Vec<_>>>()?));
        }
    }
    Ok(())
}

/// Seconds until adaptive sampling has converged.
const ADAPTS: u64 = 3;

/// Measures a run with the sidecar and a run without, in either order.
fn pair(load: &Load<'_>, observer: &Observer, configuration: &str, with_first: bool) -> anyhow::Result<Pair> {
    let with = || {
        let sidecar = Sidecar::start(observer, configuration)?;
        // Measure after adaptive sampling has converged.
        Load { seconds: ADAPTS, ..*load }.run()?;
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
