//! `cargo xtask bench cpu`: measures the cost of CPU time by network event: of each event in instructions, and of the requests of a web
//! server, with and without exact events.

use anyhow::bail;
use serde_json::{Map, Value, json};
use xtask_common::machine;

use super::{
    hooks,
    web::{self, Configuration},
};

/// Options of `cargo xtask bench cpu`.
#[derive(clap::Args)]
pub struct Options {
    /// Only measure this (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Only measure a web server with this value of `network_cpu.exact` (repeatable) [default: all, softirqs, none]
    #[arg(long)]
    exact: Vec<String>,
    #[command(flatten)]
    web: web::Comparison,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Each program's events, in a guest whose clock counts instructions
    Instructions,
    /// A web server's requests
    Server,
}

/// Signals of CPU time.
const SIGNALS: [&str; 2] = ["network_cpu", "network_functions"];

/// Runs the selected measurements and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!("the sidecar loads programs into the kernel: run this as root");
    }
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Instructions) {
        hooks::of_cpu_time(options.web.kernel())?;
    }
    if !wanted(Part::Server) {
        return Ok(());
    }
    let all = ["all", "softirqs", "none"].map(str::to_owned).to_vec();
    let values = if options.exact.is_empty() { &all } else { &options.exact };
    let configurations = values.iter().map(|exact| Configuration {
        name: format!("CPU time by event and function, `exact: {exact}`"),
        signals: Some(SIGNALS.map(str::to_owned).to_vec()),
        level: "normal".to_owned(),
        settings: settings(exact),
        samples: true,
    });
    web::run(&options.web, &configurations.collect::<Vec<_>>())
}

/// Returns the settings of the signals.
fn settings(exact: &str) -> Map<String, Value> {
    Map::from_iter([("network_cpu".to_owned(), json!({ "exact": exact }))])
}
