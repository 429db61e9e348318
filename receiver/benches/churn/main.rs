//! Generates the load of short-lived containers: cgroups with one process each. Prints the results as a JSON
//! object. `cargo xtask bench workloads` runs this beside the sidecar.

#[path = "../../tests/support/cgroups.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod cgroups;
#[path = "../../tests/kernel/support/churn.rs"]
mod churn;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;

use self::churn::Churn;

/// The shortest life of a container; the longest is five times as long.
const SHORTEST: Duration = Duration::from_millis(100);

/// Creates and removes cgroups at a steady rate, with a process in each that sends datagrams to its own socket.
#[derive(Parser)]
struct Arguments {
    /// Cgroups per minute
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Total number of cgroups
    #[arg(long, default_value_t = 5000)]
    lives: u32,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let churn = Churn::prepare().context("cannot make cgroups: run this as root")?;
    let every = Duration::from_secs(60) / arguments.rate;
    let received = churn.run(arguments.lives, every, SHORTEST).context("the churn broke off")?;
    println!("{}", serde_json::json!({ "prefix": churn.prefix(), "lives": arguments.lives, "datagrams": received }));
    Ok(())
}
