//! What is measured, built.

use std::path::PathBuf;

use crate::machine::{self, Target};

/// How a benchmark is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Unoptimized, and soon there.
    Dev,
    /// As the product is shipped.
    Release,
}

/// Builds a benchmark of the sidecar's package and returns its path.
pub fn benchmark(name: &'static str, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut command = machine::cargo();
    command.args(["build", "--locked", "--package", "undercurrent", "--bench", name]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    machine::built(&mut command, Target { kind: "bench", name })
}

/// Builds the binary that is shipped.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    let mut command = machine::cargo();
    command.args(["build", "--release", "--locked", "--package", "undercurrent"]);
    machine::run(&mut command)?;
    Ok(machine::target_directory()?.join("release/undercurrent"))
}
