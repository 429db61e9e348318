//! The sidecar's integration tests under other kernels: built here once, run in virtual machines.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::Tally;
use crate::machine;

/// The test binary that takes its truth from the kernel it runs on.
const SUITE: &str = "kernel";
/// Seconds for a guest. One takes two to four minutes on an idle machine.
const LIMIT: &str = "1500";
/// What tests are called that take a guest whose clock counts instructions.
const INSTRUCTIONS: &str = "vm_icount";

/// Under Debian 12's kernel.
pub fn linux_6_1() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.1"], &["--skip", INSTRUCTIONS])
}

/// Under Debian 13's kernel.
pub fn linux_6_12() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12"], &["--skip", INSTRUCTIONS])
}

/// Where a nanosecond is an instruction.
pub fn instructions() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12", "--icount"], &["--ignored", INSTRUCTIONS])
}

/// Runs the suite in a guest and counts its tests; what they printed is shown where one failed.
fn run(guest: &[&str], tests: &[&str]) -> anyhow::Result<Tally> {
    let suite = build()?;
    let share = tempfile::tempdir().context("cannot make a folder to share with the guest")?;
    // The guest writes nowhere else.
    let skips = share.path().join("skips");
    fs::write(&skips, "").context("cannot make a file for skips")?;
    let mut command = Command::new(machine::MYSELF);
    command.arg("vm").args(guest).args(["--timeout", LIMIT]).arg("--share").arg(share.path());
    command.arg("--env").arg(format!("UNDERCURRENT_SKIPS={}", skips.display()));
    command.arg("--").arg(suite).arg("--test-threads=1").args(tests).current_dir(machine::workspace());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = fs::read_to_string(&skips).context("cannot read the file of skips")?;
    let tally = Tally::of_libtest(&printed)?.with_skips(&said)?;
    if !output.status.success() {
        print!("{printed}{}", String::from_utf8_lossy(&output.stderr));
        if tally.failed == 0 {
            bail!("{command:?} failed: {} (124 is the guest's limit of {LIMIT} s)", output.status);
        }
    }
    Ok(tally)
}

/// What cargo says of something that it built.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds the suite, with the sidecar that it drives, and returns its binary.
fn build() -> anyhow::Result<PathBuf> {
    let mut command = Command::new(machine::cargo());
    command.args(["test", "--locked", "--quiet", "--no-run", "--package", "undercurrent", "--test", SUITE]);
    command.arg("--message-format=json").current_dir(machine::workspace()).stderr(Stdio::inherit());
    let printed = machine::output(&mut command)?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let mut built = messages.filter(|message| message.target.as_ref().is_some_and(|target| target.name == SUITE));
    built.find_map(|message| message.executable).with_context(|| format!("{command:?} named no executable"))
}
