//! `cargo xtask bench latency`: measures the cost of latency: of each event in nanoseconds and in instructions, relative to an empty
//! program, and of the requests of a web server.

use anyhow::bail;
use serde_json::Map;
use xtask_common::machine;

use super::{
    hooks,
    web::{self, Configuration},
};

/// Options of `cargo xtask bench latency`.
#[derive(clap::Args)]
pub struct Options {
    /// Only measure this (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Measure every packet, however fast they come
    #[arg(long)]
    all: bool,
    /// Measure the layers of the receive path and nothing else
    #[arg(long)]
    layers: bool,
    /// The level of the sidecar: normal or detailed
    #[arg(long, default_value = "normal")]
    level: String,
    #[command(flatten)]
    web: web::Comparison,
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
    if wanted(Part::Server) { web::run(&options.web, &[options.configuration()]) } else { Ok(()) }
}

impl Options {
    fn configuration(&self) -> Configuration {
        let signals = self.layers.then(|| vec!["latency".to_owned()]);
        let what = if self.layers { "the receive layers" } else { "all signals" };
        let name = format!("{what}, level {}", self.level);
        Configuration { name, level: self.level.clone(), signals, settings: Map::new(), samples: !self.all }
    }
}
