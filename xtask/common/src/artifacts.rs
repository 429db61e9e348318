//! Executables that cargo builds.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use cargo_metadata::{Artifact, Message, MetadataCommand, TargetKind};

use crate::{cargo, machine};

/// A target of a package.
#[derive(Clone, Debug)]
pub struct Target {
    kind: TargetKind,
    name: &'static str,
}

impl Target {
    /// Returns a binary.
    pub const fn bin(name: &'static str) -> Self {
        Self { kind: TargetKind::Bin, name }
    }

    /// Returns an integration test.
    pub const fn test(name: &'static str) -> Self {
        Self { kind: TargetKind::Test, name }
    }

    /// Returns a benchmark.
    pub const fn bench(name: &'static str) -> Self {
        Self { kind: TargetKind::Bench, name }
    }

    /// True if cargo built this target. cargo reports a binary's unit tests with the binary's kind and name.
    fn is(&self, artifact: &Artifact) -> bool {
        let is_unit_test = self.kind == TargetKind::Bin && artifact.profile.test;
        !is_unit_test && artifact.target.name == self.name && artifact.target.is_kind(self.kind.clone())
    }
}

/// Runs a cargo build and returns the executable of a target.
///
/// # Errors
/// If the build fails or does not contain the target.
pub fn build(command: &mut Command, target: &Target) -> anyhow::Result<PathBuf> {
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let printed = machine::output(command)?;
    let executable = Message::parse_stream(printed.as_bytes()).find_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) if target.is(&artifact) => artifact.executable,
        _ => None,
    });
    Ok(executable.with_context(|| format!("{command:?} built no executable of {target:?}"))?.into())
}

/// Builds a package below xtask/ and returns its program, for commands that start the program several times or in a guest.
pub fn member(package: &'static str) -> anyhow::Result<PathBuf> {
    let mut command = cargo::command();
    command.args(["build", "--quiet", "--profile", "xtask", "--package", package]);
    build(&mut command, &Target::bin(package))
}

/// Returns the folder in which cargo builds the workspace. Flags, variables and configuration files determine its path.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let metadata = MetadataCommand::new().no_deps().current_dir(machine::workspace()).exec();
    Ok(metadata.context("cannot read cargo's metadata")?.target_directory.into())
}
