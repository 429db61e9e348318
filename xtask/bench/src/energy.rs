//! `cargo xtask bench energy`: measures the cost of counters and of energy: of a switch between tasks, and of a division over 1000
//! workloads.

use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use xtask_common::machine;

use super::{
    build::{self, Profile},
    hooks,
    host::description,
    verdict,
};

/// Limit of a switch to or from the idle task above an empty program, in nanoseconds.
const SWITCH: f64 = 90.0;

/// Options of `cargo xtask bench energy`.
#[derive(clap::Args)]
pub struct Options {
    /// Measure the programs in a guest whose clock counts instructions, too
    #[arg(long)]
    icount: bool,
}

/// A line of the benchmark `tick`.
#[derive(Deserialize)]
struct Line {
    energy: Option<Division>,
}

/// A division with its points.
#[derive(Deserialize)]
struct Division {
    workloads: u16,
    divide: u64,
    points: u64,
}

/// Runs the measurements and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!("the programs are loaded into the kernel: run this as root");
    }
    println!("{}", description());
    let switch = hooks::of_energy(options.icount)?.context("no switch to the idle task was measured")?;
    println!(
        "a switch to or from the idle task with four counters: {switch:.1} ns above an empty program, limit {SWITCH}: {}",
        verdict(switch, SWITCH)
    );
    let output = machine::output(Command::new(build::benchmark("tick", Profile::Release)?).args(["--rounds", "5"]))?;
    let lines = output.lines().map(serde_json::from_str::<Line>).collect::<Result<Vec<_>, _>>()?;
    let mut divisions: Vec<Division> = lines.into_iter().filter_map(|line| line.energy).collect();
    divisions.sort_by_key(|division| division.divide + division.points);
    let median = divisions.get(divisions.len() / 2).context("the benchmark has measured no division")?;
    let (divide, points) = (median.divide as f64 / 1e6, median.points as f64 / 1e6);
    println!("two domains over {} workloads: {divide:.2} ms, and {points:.2} ms for the points", median.workloads);
    Ok(())
}
