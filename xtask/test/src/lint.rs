//! Checks of the text: formatting, lints, and what the dependencies may be.

use std::process::Command;

use anyhow::Context as _;
use xtask_common::{machine, tally::Tally, tools};

use crate::runner::checked;

fn cargo(arguments: &[&str]) -> Command {
    let mut command = xtask_common::cargo::command();
    command.args(arguments);
    command
}

fn tombi(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(tools::path("tombi")?);
    command.args(["format", "--offline", "--quiet"]).args(arguments).current_dir(machine::workspace());
    Ok(command)
}

fn deny(checks: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(tools::path("cargo-deny")?);
    command.args(["--locked", "check"]).args(checks).current_dir(machine::workspace());
    Ok(command)
}

/// Formats every Rust and TOML file.
pub fn format() -> anyhow::Result<()> {
    machine::run(&mut cargo(&["fmt", "--all"]))?;
    machine::run(&mut tombi(&[])?)
}

/// Whether the Rust files are formatted.
pub fn rust_format() -> anyhow::Result<Tally> {
    checked(&mut cargo(&["fmt", "--all", "--check"]), "run `cargo xtask fmt`")
}

/// Whether the TOML files are formatted.
pub fn toml_format() -> anyhow::Result<Tally> {
    checked(&mut tombi(&["--check", "--diff"])?, "run `cargo xtask fmt`")
}

/// Whether clippy has nothing to say.
pub fn clippy() -> anyhow::Result<Tally> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-Dwarnings"];
    checked(&mut cargo(&arguments), "mend what clippy names")
}

/// Whether the sidecar compiles without its optional features, and with each of them alone.
pub fn features() -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for feature in ["", "docker", "kubernetes", "tls"] {
        let arguments = [
            "clippy",
            "--locked",
            "--quiet",
            "--package",
            "undercurrent",
            "--no-default-features",
            "--features",
            feature,
        ];
        tally = tally.and(checked(cargo(&arguments).args(["--", "-Dwarnings"]), "see receiver/Cargo.toml")?);
    }
    Ok(tally)
}

/// Whether every dependency is one that `deny.toml` allows and none has a known vulnerability. Advisories come from a
/// repository of their own: where that cannot be fetched their check is skipped.
pub fn dependencies() -> anyhow::Result<Tally> {
    let mut tally =
        checked(&mut deny(&["licenses", "bans", "sources"])?, "see deny.toml for what is allowed, and why")?;
    let mut command = deny(&["advisories"])?;
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if output.status.success() {
        tally.passed += 1;
    } else if String::from_utf8_lossy(&output.stderr).contains("failed to fetch advisory database") {
        tally.skipped.push("advisories: their database cannot be fetched from this machine".into());
    } else {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        tally.failed += 1;
    }
    Ok(tally)
}
