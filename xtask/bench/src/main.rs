//! `cargo xtask bench`: measures the cost of the sidecar. `docs/internals/measurements.md` has figures and methods.

mod build;
mod cpu;
mod energy;
mod export;
mod hooks;
mod host;
mod latency;
mod network_cpu;
mod sidecar;
mod statistics;
mod web;
mod workloads;

use clap::Parser;
use xtask_common::{about, machine};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::BENCH)]
    Bench(Arguments),
}

/// The options of `cargo xtask bench`.
#[derive(clap::Args)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(clap::Subcommand)]
enum Benchmark {
    /// What a program adds to each hook, beside an empty program on the same hook
    Hooks(hooks::Options),
    /// What CPU time by event and function costs: an event in instructions, and what it takes from nginx under wrk
    Cpu(network_cpu::Options),
    /// What counters of the processor and energy cost: a switch between tasks, and a division over 1000 workloads
    Energy(energy::Options),
    /// The delivery of a full snapshot: CPU time and bytes, by protocol and compression
    Export(export::Options),
    /// What latency costs: an event, natively and in instructions, and what the whole sidecar takes from nginx under wrk
    Latency(latency::Options),
    /// The whole process: its start, memory, CPU time and size
    Sidecar(sidecar::Options),
    /// What it costs to tell workloads apart: an event, a tick, and containers that come and go
    Workloads(workloads::Options),
    /// What the sidecar takes from nginx, inside of a guest
    #[command(hide = true)]
    Web(web::InGuest),
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    let Command::Bench(arguments) = Command::parse();
    match arguments.benchmark {
        Benchmark::Hooks(options) => hooks::run(&options),
        Benchmark::Cpu(options) => network_cpu::run(&options),
        Benchmark::Energy(options) => energy::run(&options),
        Benchmark::Export(options) => export::run(&options),
        Benchmark::Latency(options) => latency::run(&options),
        Benchmark::Sidecar(options) => sidecar::run(&options),
        Benchmark::Workloads(options) => workloads::run(&options),
        Benchmark::Web(options) => web::run_in_guest(&options),
    }
}

/// Part of the sidecar's log line after all programs are attached.
const ATTACHED: &str = " signals: ";

/// Compares a figure with its limit.
fn verdict(value: f64, limit: f64) -> &'static str {
    if value <= limit { "kept" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Command::command().debug_assert();
    }
}
