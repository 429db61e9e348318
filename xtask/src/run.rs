//! `cargo xtask run`: builds and runs the sidecar from this checkout.

use std::{env, ffi::OsString, os::unix::process::CommandExt as _};

use anyhow::{Context as _, ensure};
use xtask_common::{cargo, machine};

/// The profile in `Cargo.toml` that compiles fastest.
const PROFILE: &str = "quick";

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub struct Options {
    /// Arguments of the sidecar
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with `cargo run` of the sidecar, as root. Signals and the exit status belong to the sidecar.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut cargo_options = vec!["--locked".to_owned()];
    if !machine::is_root() {
        ensure!(machine::has("sudo"), "loading eBPF programs needs root, and sudo is not installed: run this as root");
        // cargo starts the sidecar through its target's runner.
        let preserved = settings().map(|names| format!(", \"--preserve-env={names}\"")).unwrap_or_default();
        cargo_options.extend(["--config".to_owned(), format!("target.'cfg(unix)'.runner = [\"sudo\"{preserved}]")]);
    }
    eprintln!(
        "building the sidecar: three minutes on two cores the first time, under a minute after an edit; then it starts"
    );
    let mut command = cargo::run("undercurrent", PROFILE, &cargo_options);
    Err(command.args(&options.arguments).exec()).with_context(|| format!("cannot start {command:?}"))
}

/// Names of the environment variables that configure the sidecar, separated by commas. sudo removes all others.
fn settings() -> Option<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with("OTEL_") || name.starts_with("UNDERCURRENT_"));
    ours.reduce(|list, name| list + "," + &name)
}
