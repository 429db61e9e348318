//! The sidecar's integration tests under other kernels: built here once, run in virtual machines.

use std::{
    fs,
    io::BufReader,
    panic::resume_unwind,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, bail, ensure};
use xtask_common::{artifacts, machine, tally::Tally, truth};

use crate::{
    libtest::Output,
    nextest::{self, Sidecar},
};

/// Time limit of a guest in seconds. The longest suite takes 26 minutes.
const LIMIT: &str = "4800";
/// Prefix of the tests that need a guest with a clock that counts instructions.
const INSTRUCTIONS: &str = "vm_icount";
/// Prefix of the tests that need a guest with a NIC that timestamps packets.
const NICS: &str = "vm_nics";
/// Prefix of the tests that need a guest with two hyper-threads on each core.
const THREADS: &str = "vm_threads";

/// Prefix of the tests that need a guest where threads process the packets of loopback and veth.
const BACKLOG: &str = "vm_backlog";

/// The tests of the quick tier: every program loads and fires, and each signal has a count. The matrix compares times.
const QUICK: [&str; 3] = [
    "doctor::every_hook_is_served_as_this_kernel_allows_and_fires",
    "doctor::every_program_of_the_complete_settings_fires",
    "every_signal::every_signal_counts_the_traffic_of_the_test",
];

/// Prefixes of the tests of latency.
const LATENCY: [&str; 10] = [
    "latency::",
    "sampling::",
    "filters::",
    "grouping::",
    "waits::",
    "transmit::",
    "extra::",
    "kprobes::",
    "resolution::",
    "slow::",
];

/// Prefixes of other tests with results that depend on the kernel version.
const KERNELS_OWN: [&str; 5] = ["functions::", "head_of_line::", "softirq::", "doctor::", "workloads::"];

/// A set of hooks that replaces trampolines, for hosts with a policy that forbids trampolines.
struct Alternates {
    /// The kinds of hooks that every sidecar avoids.
    avoid: &'static str,
    /// Prefixes of the tests that run under every kernel.
    tests: &'static [&'static str],
    /// Prefixes of the tests that run under one kernel: their programs differ by hook, not by kernel.
    others: &'static [&'static str],
}

/// Kprobes; and tracepoints with the hook of the cgroup, for hosts that forbid kprobes too.
const ALTERNATES: [Alternates; 2] = [
    Alternates {
        avoid: "fentry",
        tests: &["latency::", "waits::", "head_of_line::"],
        others: &["filters::", "grouping::", "peeks::", "transmit::", "slow::"],
    },
    Alternates {
        avoid: "fentry kprobe",
        tests: &["latency::"],
        others: &["sampling::", "filters::", "grouping::", "waits::", "head_of_line::", "peeks::", "ways::", "slow::"],
    },
];

/// Tests that every program fires and that each signal counts, under Debian 13's kernel with fentry.
pub fn signals() -> anyhow::Result<Tally> {
    let suite = nextest::suite(Sidecar::Unoptimized)?;
    let tally = run_suite(&suite, &["--kernel", "6.12"], &[&["--exact"], &QUICK[..]].concat())?;
    // The test harness ignores unknown names.
    let ran = tally.timings.len();
    ensure!(ran == QUICK.len(), "{ran} of {} tests ran; a renamed test is the likely reason: {QUICK:?}", QUICK.len());
    Ok(tally)
}

/// Loads the programs with several settings under the oldest kernels, whose verifiers understand the least.
pub fn verifiers() -> anyhow::Result<Tally> {
    let suite = nextest::suite(Sidecar::Unoptimized)?;
    let under = |kernel| run_suite(&suite, &["--kernel", kernel], &["the_verifier_accepts_every_program"]);
    // A guest uses one CPU.
    let [oldest, older] = thread::scope(|scope| {
        let guests = ["5.10", "6.1"].map(|kernel| scope.spawn(move || under(kernel)));
        guests.map(|guest| guest.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    Ok(oldest?.and(older?))
}

/// Tests latency under the oldest kernel.
pub fn linux_5_10() -> anyhow::Result<Tally> {
    by_every_set("5.10", &LATENCY)
}

/// Runs the tests with results that depend on the kernel, under Debian 12's kernel.
pub fn linux_6_1() -> anyhow::Result<Tally> {
    by_every_set("6.1", &[LATENCY.as_slice(), &KERNELS_OWN].concat())
}

/// Runs the whole suite under Debian 13's kernel.
pub fn linux_6_12() -> anyhow::Result<Tally> {
    Ok(run(&["--kernel", "6.12"], &["--skip", INSTRUCTIONS])?.and(by_level("6.12")?))
}

/// Runs the tests with results that depend on the hook under Debian 13's kernel, without trampolines.
pub fn linux_6_12_by_alternates() -> anyhow::Result<Tally> {
    by_alternates("6.12", true)
}

/// Tests latency under the newest kernel.
pub fn linux_7() -> anyhow::Result<Tally> {
    by_every_set("7", &LATENCY)
}

/// Runs the tests that need a clock that counts instructions.
pub fn instructions() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12", "--icount"], &["--ignored", INSTRUCTIONS])
}

/// Runs the tests that need a NIC that timestamps packets.
pub fn nics() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12-general", "--stamps"], &["--ignored", NICS])
}

/// Runs the tests that need two hyper-threads on each core.
pub fn threads() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12", "--threads", "2"], &["--ignored", THREADS])
}

/// Runs the tests that need threads for the packets of loopback and veth.
pub fn backlog() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12", "--parameter", "thread_backlog_napi"], &["--ignored", BACKLOG])
}

/// Runs the tests of the quick tier and of latency under Debian's real-time kernel.
pub fn real_time() -> anyhow::Result<Tally> {
    run(&["--kernel", "6.12-rt"], &[&QUICK[..], &["latency::", "the_verifier_accepts_every_program"]].concat())
}

/// Runs tests with trampolines, those of the level `normal`, then the tests of latency for each set of alternates.
fn by_every_set(kernel: &str, tests: &[&str]) -> anyhow::Result<Tally> {
    Ok(run(&["--kernel", kernel], tests)?.and(by_level(kernel)?).and(by_alternates(kernel, false)?))
}

/// Runs the tests with results that depend on the level at the level `normal`.
fn by_level(kernel: &str) -> anyhow::Result<Tally> {
    let (name, value) = nextest::LEVEL_NORMAL;
    run(&["--kernel", kernel, "--env", &format!("{name}={value}")], &[nextest::BY_LEVEL, &["entries::"]].concat())
}

/// Tests latency with each set of alternates. Without `all`, only the tests with results that depend on the kernel.
fn by_alternates(kernel: &str, all: bool) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for Alternates { avoid, tests, others } in &ALTERNATES {
        let without = format!("UNDERCURRENT_TEST_AVOID={avoid}");
        let tests = [*tests, if all { *others } else { &[] }].concat();
        tally = tally.and(run(&["--kernel", kernel, "--env", &without], &tests)?);
    }
    Ok(tally)
}

/// Runs tests of the suite in a guest.
fn run(guest: &[&str], tests: &[&str]) -> anyhow::Result<Tally> {
    run_suite(&nextest::suite(Sidecar::Optimized)?, guest, tests)
}

/// Runs tests of a suite in a guest and counts them. Prints their output if one failed.
fn run_suite(suite: &Path, guest: &[&str], tests: &[&str]) -> anyhow::Result<Tally> {
    let share = tempfile::tempdir().context("cannot create a folder to share with the guest")?;
    // The guest can write only to the share.
    let skips = share.path().join("skips");
    fs::write(&skips, "").context("cannot create a file for skips")?;
    let errors = share.path().join("errors");
    fs::write(&errors, "").context("cannot create a file for measured errors")?;
    let mut command = Command::new(artifacts::member("xtask-vm")?);
    // Several guests run side by side, and more threads than CPUs do not make them faster.
    command.args(["vm", "--in-turns"]).args(guest).args(["--timeout", LIMIT]).arg("--share").arg(share.path());
    command.arg("--env").arg(format!("UNDERCURRENT_SKIPS={}", skips.display()));
    command.arg("--env").arg(format!("{}={}", truth::RESULTS, errors.display()));
    command.arg("--").arg(suite).arg("--test-threads=1").args(tests).current_dir(machine::workspace());
    let log = tempfile::NamedTempFile::new().context("cannot create a file for the guest's errors")?;
    command.stdout(Stdio::piped()).stderr(log.reopen().context("cannot open the file for the guest's errors")?);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let printed = child.stdout.take().context("the guest has no output")?;
    let Output { text, tally } = Output::read(BufReader::new(printed))?;
    let status = child.wait().with_context(|| format!("cannot wait for {command:?}"))?;
    let skipped = fs::read_to_string(&skips).context("cannot read the file of skips")?;
    if !status.success() {
        print!("{text}{}", fs::read_to_string(log.path()).unwrap_or_default());
        if tally.failed == 0 {
            bail!("{command:?} failed: {status} (124 is the guest's limit of {LIMIT} s)");
        }
    }
    let errors = fs::read_to_string(&errors).context("cannot read the file of measured errors")?;
    Ok(tally.with_skips(&skipped)?.with_errors(&errors))
}
