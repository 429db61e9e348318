//! Tests that cargo runs on this machine.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use super::Tally;
use crate::machine;

/// A hung test must end while somebody still waits for the result.
const LIMIT: &str = "30m";

/// Unit tests of every crate, and the examples in the documentation.
pub fn unit() -> anyhow::Result<Tally> {
    let mut tally = libtest(&["--workspace", "--lib", "--bins"])?;
    let documentation = libtest(&["--workspace", "--doc"])?;
    tally.passed += documentation.passed;
    tally.failed += documentation.failed;
    tally.skipped.extend(documentation.skipped);
    Ok(tally)
}

/// Integration tests, one at a time: they share this machine's kernel, and count what it does.
pub fn native() -> anyhow::Result<Tally> {
    machine::install(&["iproute2"])?;
    libtest(&["--workspace", "--test", "*", "--", "--test-threads=1", "--skip", "vm_"])
}

/// The test binary that takes its truth from the kernel it runs on.
const SUITE: &str = "kernel";

/// That binary, built with the sidecar that it drives.
pub fn suite() -> anyhow::Result<PathBuf> {
    built(SUITE)
}

/// The sidecar that tests drive, built.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    built("undercurrent")
}

/// Always of the whole workspace: the features of what its packages share follow from which of them are built, and with other
/// features everything is built once more.
fn built(target: &str) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(machine::cargo());
    command.args(["test", "--locked", "--quiet", "--no-run", "--workspace", "--test", SUITE]);
    machine::built(&mut command, target)
}

/// Tests of the virtual machines that other tests run in.
pub fn virtual_machines() -> anyhow::Result<Tally> {
    libtest(&["--workspace", "--test", "vm", "--", "--ignored", "--test-threads=1"])
}

/// Runs tests and counts them; what they printed is shown where one failed.
fn libtest(arguments: &[&str]) -> anyhow::Result<Tally> {
    let skips = tempfile::NamedTempFile::new().context("cannot make a file for skips")?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10s", LIMIT]).arg(machine::cargo());
    command.args(["test", "--locked", "--no-fail-fast"]).args(arguments).current_dir(machine::workspace());
    // A snapshot that differs is a failure here, never a file to review.
    command.env("INSTA_UPDATE", "no").env("UNDERCURRENT_SKIPS", skips.path());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = std::fs::read_to_string(skips.path()).context("cannot read the file of skips")?;
    let tally = Tally::of_libtest(&printed)?.with_skips(&said)?;
    if !output.status.success() {
        print!("{printed}{}", String::from_utf8_lossy(&output.stderr));
        if tally.failed == 0 {
            bail!("{command:?} failed: {} (124 is its limit of {LIMIT})", output.status);
        }
    }
    Ok(tally)
}
