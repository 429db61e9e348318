//! `cargo xtask run`: the sidecar from this checkout, on this machine.

use std::{env, ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, bail};

use crate::machine;

/// The profile in `Cargo.toml` that compiles fastest.
const PROFILE: &str = "quick";

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub struct Options {
    /// Arguments of the sidecar
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Builds the sidecar and becomes it, through sudo where need be.
pub fn run(options: &Options) -> anyhow::Result<()> {
    eprintln!(
        "building the sidecar: three minutes on two cores the first time, under a minute after an edit; then it starts"
    );
    machine::run(machine::cargo().args(["build", "--profile", PROFILE, "--locked", "--package", "undercurrent"]))?;
    let binary = machine::target_directory()?.join(PROFILE).join("undercurrent");
    let mut command = if machine::is_root() {
        Command::new(&binary)
    } else if machine::has("sudo") {
        let mut sudo = Command::new("sudo");
        if let Some(names) = settings() {
            sudo.arg(format!("--preserve-env={names}"));
        }
        sudo.arg(&binary);
        sudo
    } else {
        bail!("loading eBPF programs needs root, and there is no sudo here: run {} as root", binary.display());
    };
    // Taking this process's place leaves signals and the exit status to the sidecar.
    Err(command.args(&options.arguments).exec()).with_context(|| format!("cannot start {command:?}"))
}

/// The variables that configure the sidecar, by name: sudo drops them otherwise.
fn settings() -> Option<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with("OTEL_") || name.starts_with("UNDERCURRENT_"));
    ours.reduce(|list, name| list + "," + &name)
}
