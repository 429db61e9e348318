//! `cargo xtask bench hooks`: builds `receiver/benches/hooks`, runs it on this kernel or in an instruction-counting
//! guest, and says what each program costs above an empty one.

mod report;
mod round;

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use self::report::Stopwatch;
use super::machine::description;
use crate::machine;

/// Options of `cargo xtask bench hooks`.
#[derive(clap::Args)]
pub struct Options {
    /// Run in a guest whose clock counts instructions: exact, and the only way to see fentry where the host refuses it
    #[arg(long)]
    icount: bool,
    /// The guest's kernel
    #[arg(long, requires = "icount", default_value = "6.12")]
    kernel: String,
    /// Rounds of each kind of traffic, for each set of handlers and order of attachment [default: 100; 5 in the guest]
    #[arg(long)]
    rounds: Option<u32>,
    /// Requests in a round, each with its reply [default: 200; 50 in the guest]
    #[arg(long)]
    requests: Option<u32>,
}

/// Builds, runs, reports.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!(
            "this loads programs into the kernel: run it as root (sudo -E env PATH=\"$PATH\" cargo xtask bench hooks)"
        );
    }
    let benchmark = build()?;
    let (rounds, requests) = if options.icount { (5, 50) } else { (100, 200) };
    let mut command = if options.icount {
        let mut guest = Command::new(machine::MYSELF);
        guest.args(["vm", "--icount", "--timeout", "600", "--kernel", &options.kernel, "--"]).arg(benchmark);
        guest
    } else {
        Command::new(benchmark)
    };
    command.arg("--rounds").arg(options.rounds.unwrap_or(rounds).to_string());
    command.arg("--requests").arg(options.requests.unwrap_or(requests).to_string());
    println!("{}", description());
    let rounds = round::parse(&machine::output(&mut command)?)?;
    let stopwatch =
        if options.icount { Stopwatch::Instructions(options.kernel.clone()) } else { Stopwatch::Nanoseconds };
    print!("{}", report::render(&rounds, &stopwatch));
    Ok(())
}

/// Builds the benchmark and returns its path. Unoptimized: what is measured runs in the kernel.
fn build() -> anyhow::Result<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        target: Option<Target>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let mut command = Command::new(machine::cargo());
    command.args(["build", "--locked", "--package", "undercurrent", "--bench", "hooks"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(machine::workspace());
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: Message = serde_json::from_str(line).ok()?;
        message.executable.filter(|_| message.target.is_some_and(|target| target.name == "hooks"))
    });
    executables.next_back().context("cargo built no benchmark of hooks")
}
