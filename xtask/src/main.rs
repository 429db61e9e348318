//! The one door for developers: `cargo xtask help`.

mod collector;
mod e2e;
mod machine;
mod process;

use clap::Parser;

/// Developer commands of Undercurrent.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Build a real OpenTelemetry Collector into the cache, for the tests that send to one.
    Collector(collector::Arguments),
    /// Run the sidecar with the real programs it works with.
    E2e(e2e::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Collector(arguments) => collector::command(&arguments),
        Command::E2e(arguments) => e2e::command(arguments),
    }
}
