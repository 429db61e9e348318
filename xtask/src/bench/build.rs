//! What is measured, built.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

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
    command.args(["build", "--locked", "--package", "undercurrent", "--bench", name]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(machine::workspace());
    if profile == Profile::Release {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: Message = serde_json::from_str(line).ok()?;
        message.executable.filter(|_| message.target.is_some_and(|target| target.name == name))
    });
    executables.next_back().with_context(|| format!("cargo built no benchmark `{name}`"))
}

/// Builds the binary that is shipped.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    let mut command = Command::new(machine::cargo());
    command.args(["build", "--release", "--locked", "--package", "undercurrent"]).current_dir(machine::workspace());
    machine::run(&mut command)?;
    Ok(machine::target_directory()?.join("release/undercurrent"))
}
