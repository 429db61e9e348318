//! `cargo xtask test`, `docs` and `fmt`.

mod docs;
mod fuzz;
mod guest;
mod libtest;
mod lint;
mod nextest;
mod parts;
mod record;
mod report;
mod runner;
mod semconv;
mod unused;

use clap::Parser;
use xtask_common::{about, machine};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    #[command(about = about::TEST)]
    Test(runner::Options),
    #[command(about = about::DOCS)]
    Docs(docs::Options),
    #[command(about = about::FMT)]
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
