//! Builds the measured programs.

use std::path::PathBuf;

use xtask_common::{
    artifacts::{self, Target},
    cargo, machine,
};

/// Build profile of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Unoptimized and quick to build.
    Dev,
    /// The profile of packages and images.
    Release,
}

/// Builds a benchmark of the sidecar's package and returns its path.
pub fn benchmark(name: &'static str, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut command = cargo::command();
    command.args(["build", "--locked", "--package", "undercurrent", "--bench", name]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    artifacts::build(&mut command, &Target::bench(name))
}

/// Builds the release binary and returns its path.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    let mut command = cargo::command();
    command.args(["build", "--release", "--locked", "--package", "undercurrent"]);
    machine::run(&mut command)?;
    Ok(artifacts::target_directory()?.join("release/undercurrent"))
}
