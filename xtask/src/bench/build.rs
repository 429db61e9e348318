//! What is measured, built.

use std::{path::PathBuf, process::Command};

use crate::machine;

/// How a benchmark is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Unoptimized, and soon there.
    Dev,
    /// As the product is shipped.
    Release,
}

/// Builds a benchmark of the sidecar's package and returns its path.
pub fn benchmark(name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(machine::cargo());
    command.args(["build", "--locked", "--package", "undercurrent", "--bench", name]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    machine::built(&mut command, name)
}

/// Builds the binary that is shipped.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    let mut command = Command::new(machine::cargo());
    command.args(["build", "--release", "--locked", "--package", "undercurrent"]).current_dir(machine::workspace());
    machine::run(&mut command)?;
    Ok(machine::target_directory()?.join("release/undercurrent"))
}
