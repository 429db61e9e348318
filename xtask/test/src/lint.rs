//! Static checks: formatting, lints and dependencies.

use std::process::Command;

use anyhow::{Context as _, bail};
use xtask_common::{machine, tally::Tally, tools};

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

/// Runs a check that passes or fails as a unit, and prints its output if it fails.
pub fn checked(command: &mut Command, remedy: &str) -> anyhow::Result<Tally> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{command:?} failed: {remedy}");
    }
    Ok(Tally::passed(1))
}

/// Formats every Rust and TOML file.
pub fn format() -> anyhow::Result<()> {
    machine::run(&mut cargo(&["fmt", "--all"]))?;
    machine::run(&mut tombi(&[])?)
}

/// Checks that the Rust files are formatted.
pub fn rust_format() -> anyhow::Result<Tally> {
    checked(&mut cargo(&["fmt", "--all", "--check"]), "run `cargo xtask fmt`")
}

/// Checks that the TOML files are formatted.
pub fn toml_format() -> anyhow::Result<Tally> {
    checked(&mut tombi(&["--check", "--diff"])?, "run `cargo xtask fmt`")
}

/// Checks that clippy reports nothing.
pub fn clippy() -> anyhow::Result<Tally> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-Dwarnings"];
    checked(&mut cargo(&arguments), "fix the lints that clippy reports")
}

/// The optional features, each with a package that only this feature needs. `kubernetes` includes `tls`.
const FEATURES: [(&str, &str); 3] = [("docker", "bollard"), ("kubernetes", "kube"), ("tls", "tokio-rustls")];

/// Checks that the sidecar compiles without its optional features, and with each of them alone, and that a feature that is off leaves
/// out its package: a dependency with default features would enable it again.
pub fn features() -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for feature in ["", "docker", "kubernetes", "tls"] {
        let selected = ["--locked", "--package", "undercurrent", "--no-default-features", "--features", feature];
        let mut clippy = cargo(&["clippy", "--quiet"]);
        tally = tally.and(checked(clippy.args(selected).args(["--", "-Dwarnings"]), "see receiver/Cargo.toml")?);
        let mut tree = cargo(&["tree", "--edges", "normal", "--prefix", "none", "--format", "{lib}"]);
        let tree = machine::output(tree.args(selected))?;
        let is_on = |name: &str| name == feature || (feature, name) == ("kubernetes", "tls");
        for (name, package) in FEATURES {
            let library = package.replace('-', "_");
            if tree.lines().any(|line| line == library) == is_on(name) {
                tally.passed += 1;
            } else {
                eprintln!(
                    "with the features `{feature}`, the package {package} of `{name}` is wrong: see the features of dependencies"
                );
                tally.failed += 1;
            }
        }
    }
    Ok(tally)
}

/// Checks that `deny.toml` allows every dependency and that no dependency has a known vulnerability. The check of advisories is
/// skipped if their repository cannot be fetched.
pub fn dependencies() -> anyhow::Result<Tally> {
    let mut tally = checked(
        &mut deny(&["licenses", "bans", "sources"])?,
        "deny.toml lists the allowed licences and crates, with reasons",
    )?;
    let mut command = deny(&["advisories"])?;
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if output.status.success() {
        tally.passed += 1;
    } else if String::from_utf8_lossy(&output.stderr).contains("failed to fetch advisory database") {
        tally.skipped.push("advisories: the database cannot be fetched from this machine".into());
    } else {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        tally.failed += 1;
    }
    Ok(tally)
}
