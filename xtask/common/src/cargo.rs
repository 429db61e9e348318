//! Calls of cargo.

use std::{env, process::Command};

use crate::machine;

/// Returns a call of the cargo that runs this process, or of the one in `PATH`, in the workspace.
pub fn command() -> Command {
    let mut command = anywhere();
    command.current_dir(machine::workspace());
    command
}

/// Returns a call of `cargo run` in the caller's working directory, for the program that has its package's name. Arguments
/// added to the call belong to the program.
pub fn run(package: &str, profile: &str, options: &[String]) -> Command {
    let mut command = anywhere();
    command.arg("run").arg("--manifest-path").arg(machine::workspace().join("Cargo.toml"));
    command.args(["--profile", profile, "--package", package, "--bin", package]).args(options).arg("--");
    command
}

fn anywhere() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
