//! `cargo xtask bench sidecar`: measures the process of the release binary.

mod footprint;
mod start;

use std::{env, fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, bail};
use xtask_common::{artifacts, machine, traffic::Traffic};
use xtask_e2e::collector::running::Collector;

use super::{build, host::description};

/// Options of `cargo xtask bench sidecar`.
#[derive(clap::Args)]
pub struct Options {
    /// Starts to take the time of
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// Seconds to watch memory and CPU time at the default interval, for each output
    #[arg(long, default_value_t = 61)]
    seconds: u64,
    /// Time starts under these kernels too, in virtual machines (repeatable): 6.1, 6.12
    #[arg(long)]
    kernel: Vec<String>,
    /// Only time starts
    #[arg(long)]
    starts_only: bool,
    /// The sidecar's binary [default: the release one, built first]
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Runs the measurements and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if !machine::is_root() {
        bail!("the sidecar loads programs into the kernel: run this as root");
    }
    let binary = options.binary.clone().map_or_else(build::sidecar, Ok)?;
    println!("{}", description());
    print!("{}", start::measure(&binary, options.starts)?);
    for kernel in &options.kernel {
        let mut guest = Command::new(artifacts::member("xtask-vm")?);
        guest.args(["vm", "--kernel", kernel, "--timeout", "300", "--"]);
        guest.arg(env::current_exe()?).args(["bench", "sidecar", "--starts-only", "--starts", "3", "--binary"]);
        println!("\nin a virtual machine without acceleration, ten to twenty times slower:");
        print!("{}", machine::output(guest.arg(&binary))?);
    }
    if options.starts_only {
        return Ok(());
    }
    let size = fs::metadata(&binary).with_context(|| format!("no sidecar at {}", binary.display()))?.len();
    println!("\nbinary: {:.1} MB, stripped", size as f64 / 1e6);
    footprints(options, &binary)
}

/// Measures memory and CPU time at the default interval under traffic, with a collector and with a file.
fn footprints(options: &Options, binary: &std::path::Path) -> anyhow::Result<()> {
    let watched = Duration::from_secs(options.seconds);
    let folder = tempfile::tempdir().context("cannot create a folder for the sidecar's output")?;
    let collector = Collector::start()?;
    let mut otlp = Command::new(binary);
    otlp.args(["run", "--output", "otlp"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    let mut json = Command::new(binary);
    json.args(["run", "--interval", "10s", "--output"]);
    json.arg(format!("json={}", folder.path().join("lines").display()));
    for (name, command) in [("OTLP to a collector", &mut otlp), ("JSON to a file", &mut json)] {
        let traffic = Traffic::start()?;
        let footprint = footprint::measure(command, watched)?;
        traffic.stop()?;
        print!("\n{name}, interval 10s, {} s:\n{footprint}", options.seconds);
    }
    let requests = collector.stop()?.len();
    println!("\nthe collector received {requests} requests");
    Ok(())
}
