//! `cargo xtask test`, `docs` and `fmt`.

mod docs;
mod guest;
mod libtest;
mod lint;
mod nextest;
mod parts;
mod record;
mod report;
mod runner;

use clap::Parser;
use xtask_common::machine;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run checks and tests; with --matrix all of them
    Test(runner::Options),
    /// Write the generated pages of the documentation
    Docs(docs::Options),
    /// Format Rust and TOML files
    Fmt,
}

fn main() -> anyhow::Result<()> {
    machine::restore_environment();
    match Command::parse() {
        Command::Test(options) => runner::run(&options),
        Command::Docs(options) => docs::run(&options),
        Command::Fmt => lint::format(),
    }
}
