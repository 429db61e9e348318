//! The one door for developers: `cargo xtask help`.

mod machine;

use clap::Parser;

/// Developer commands of Undercurrent.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {}

fn main() -> anyhow::Result<()> {
    match Command::parse() {}
}
