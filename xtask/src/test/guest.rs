//! The sidecar's integration tests under other kernels: built here once, run in virtual machines.

use std::{fs, process::Command};

use anyhow::{Context as _, bail};

use super::{Tally, cargo};
use crate::machine;

/// Seconds for a guest. Three at once take some fifteen minutes each on a machine of two CPUs.
const LIMIT: &str = "2400";
/// What tests are called that take a guest whose clock counts instructions.
const INSTRUCTIONS: &str = "vm_icount";
/// What tests are called that take one whose network card stamps packets.
const CARDS: &str = "vm_cards";

/// What tests of latency are called.
const LATENCY: [&str; 9] = [
    "latency::",
    "sampling::",
    "filters::",
    "grouping::",
    "waits::",
    "transmit::",
    "extra::",
    "kprobes::",
    "resolution::",
];

/// What tests of whatever differs from kernel to kernel are called, besides.
const KERNELS_OWN: [&str; 4] = ["head_of_line::", "softirq::", "doctor::", "workloads::"];

/// A set of hooks that stands in for trampolines, as where a host's policy refuses them.
struct Alternates {
    /// What every sidecar does without.
    avoid: &'static str,
    /// What the tests are called that show it under every kernel.
    tests: &'static [&'static str],
    /// What others are called, under one kernel: their programs differ by hook, and not by kernel.
    others: &'static [&'static str],
}

/// Kprobes, and where they are refused too, tracepoints and the cgroup's hook.
const ALTERNATES: [Alternates; 2] = [
    Alternates {
        avoid: "fentry",
        tests: &["latency::", "waits::", "head_of_line::"],
        others: &["filters::", "grouping::", "peeks::", "transmit::"],
    },
    Alternates {
        avoid: "fentry kprobe",
        tests: &["latency::"],
        others: &["sampling::", "filters::", "grouping::", "waits::", "head_of_line::", "peeks::", "ways::"],
    },
];

/// Latency under the oldest kernel.
pub fn linux_5_10() -> anyhow::Result<Tally> {
    by_every_set("5.10", &LATENCY)
}

/// What differs from kernel to kernel under Debian 12's.
pub fn linux_6_1() -> anyhow::Result<Tally> {
    by_every_set("6.1", &[LATENCY.as_slice(), &KERNELS_OWN].concat())
}

/// Everything under Debian 13's kernel.
pub fn linux_6_12() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12"], &["--skip", INSTRUCTIONS])
}

/// Latency without trampolines there, whatever may differ by hook.
pub fn linux_6_12_by_alternates() -> anyhow::Result<Tally> {
    by_alternates("6.12", true)
}

/// Latency under the newest kernel.
pub fn linux_7() -> anyhow::Result<Tally> {
    by_every_set("7", &LATENCY)
}

/// Where a nanosecond is an instruction.
pub fn instructions() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12", "--icount"], &["--ignored", INSTRUCTIONS])
}

/// Where a network card stamps packets.
pub fn cards() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12-general", "--stamps"], &["--ignored", CARDS])
}

/// These tests with trampolines, and of latency without what may differ by kernel.
fn by_every_set(kernel: &str, tests: &[&str]) -> anyhow::Result<Tally> {
    Ok(run(&["--kernel", kernel], tests)?.and(by_alternates(kernel, false)?))
}

/// Latency by each set of alternates: all of it, or what may differ by kernel.
fn by_alternates(kernel: &str, all: bool) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for Alternates { avoid, tests, others } in &ALTERNATES {
        let without = format!("UNDERCURRENT_TEST_AVOID={avoid}");
        let tests = [*tests, if all { *others } else { &[] }].concat();
        tally = tally.and(run(&["--kernel", kernel, "--env", &without], &tests)?);
    }
    Ok(tally)
}

/// Runs the suite in a guest and counts its tests; what they printed is shown where one failed.
fn run(guest: &[&str], tests: &[&str]) -> anyhow::Result<Tally> {
    let suite = cargo::suite()?;
    let share = tempfile::tempdir().context("cannot make a folder to share with the guest")?;
    // The guest writes nowhere else.
    let skips = share.path().join("skips");
    fs::write(&skips, "").context("cannot make a file for skips")?;
    let mut command = Command::new(machine::MYSELF);
    // Others run beside it, and more threads than CPUs bring nothing.
    command.args(["vm", "--in-turns"]).args(guest).args(["--timeout", LIMIT]).arg("--share").arg(share.path());
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
