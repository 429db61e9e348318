//! `cargo xtask bench workloads`: measures the cost of attribution to workloads.

mod attribution;
mod churn;
mod lines;
mod tick;

use std::{path::PathBuf, process::Command};

use anyhow::bail;
use xtask_common::machine;

use super::{
    build::{self, Profile},
    hooks::{self, Sampling},
    host::description,
};

/// Options of `cargo xtask bench workloads`.
#[derive(clap::Args)]
pub struct Options {
    /// Only measure this (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Minutes of containers that come and go
    #[arg(long, default_value_t = 5)]
    minutes: u32,
    /// Containers that come and go in a minute
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Seconds from one snapshot to the next meanwhile
    #[arg(long, default_value_t = 10)]
    interval: u32,
    /// The sidecar's binary [default: the release one, built first]
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// What finding an owner adds to an event
    Event,
    /// Reading many workloads' histograms on many CPUs
    Tick,
    /// Containers that come and go
    Churn,
}

/// Runs the selected measurements and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!("this loads programs into the kernel and makes cgroups: run it as root");
    }
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Event) {
        let mut benchmark = hooks::benchmark()?;
        println!("{}", description());
        let rounds = Sampling::natively(&attribution::HANDLERS).run(&mut benchmark)?;
        print!("{}", attribution::render(&rounds));
    }
    if wanted(Part::Tick) {
        let mut benchmark = Command::new(build::benchmark("tick", Profile::Release)?);
        println!("\n{}", description());
        print!("{}", tick::render(&machine::output(&mut benchmark)?)?);
    }
    if wanted(Part::Churn) {
        let binary = options.binary.clone().map_or_else(build::sidecar, Ok)?;
        let benchmark = build::benchmark("churn", Profile::Dev)?;
        let plan = churn::Plan { minutes: options.minutes, rate: options.rate, interval: options.interval };
        println!("\n{}", description());
        print!("{}", churn::measure(&binary, &benchmark, plan)?);
        println!("{}", description());
    }
    Ok(())
}
