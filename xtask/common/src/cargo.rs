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

#[cfg(feature = "full")]
pub use self::full::{Target, built, member, metadata, target_directory};

#[cfg(feature = "full")]
mod full {
    use std::{
        path::PathBuf,
        process::{Command, Stdio},
    };

    use anyhow::Context as _;
    use cargo_metadata::{Artifact, Message, Metadata, MetadataCommand, TargetKind};

    use crate::machine;

    /// A target of a package.
    #[derive(Clone, Debug)]
    pub struct Target {
        /// For example a binary, a test or a benchmark.
        pub kind: TargetKind,
        /// The name in the package's manifest.
        pub name: &'static str,
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

        /// True for the executable of this target. cargo reports a binary's unit tests with the binary's kind and name.
        fn made(&self, artifact: &Artifact) -> bool {
            let is_unit_test = self.kind == TargetKind::Bin && artifact.profile.test;
            !is_unit_test && artifact.target.name == self.name && artifact.target.is_kind(self.kind.clone())
        }
    }

    /// Runs a cargo build and returns the executable of a target.
    pub fn built(command: &mut Command, target: &Target) -> anyhow::Result<PathBuf> {
        command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
        let printed = machine::output(command)?;
        let executable = Message::parse_stream(printed.as_bytes()).find_map(|message| match message {
            Ok(Message::CompilerArtifact(artifact)) if target.made(&artifact) => artifact.executable,
            _ => None,
        });
        Ok(executable.with_context(|| format!("{command:?} built no executable of {target:?}"))?.into())
    }

    /// Builds a package below xtask/ and returns its program, for commands that start the program several times or in a guest.
    pub fn member(package: &'static str) -> anyhow::Result<PathBuf> {
        let mut command = super::command();
        command.args(["build", "--quiet", "--profile", "xtask", "--package", package]);
        built(&mut command, &Target::bin(package))
    }

    /// Reads the metadata of the workspace, without its dependencies.
    pub fn metadata() -> anyhow::Result<Metadata> {
        let mut command = MetadataCommand::new();
        command.no_deps().current_dir(machine::workspace());
        command.exec().context("cannot read the workspace's metadata")
    }

    /// Returns the folder in which cargo builds the workspace. It depends on flags, variables and configuration files.
    pub fn target_directory() -> anyhow::Result<PathBuf> {
        Ok(metadata()?.target_directory.into())
    }
}
