//! Tests that run on this machine, by cargo-nextest.

use std::{fs, io::BufReader, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, bail, ensure};
use xtask_common::{
    artifacts::{self, Target},
    cargo, machine, packages,
    tally::{Tally, Timing},
    tools, truth,
};

use super::libtest::Output;

/// The test binary that compares the sidecar with the kernel it runs on.
const SUITE: Target = Target::test("kernel");
/// The sidecar.
const SIDECAR: Target = Target::bin("undercurrent");
/// The profile in `.config/nextest.toml`, and the report that it writes, below the workspace.
const PROFILE: &str = "xtask";
const REPORT: &str = "target/nextest/xtask/junit.xml";
/// The exit status of cargo-nextest when tests failed.
const TESTS_FAILED: i32 = 100;

/// Builds the sidecar and every test binary, with the arguments that all later builds repeat.
pub fn build() -> anyhow::Result<Tally> {
    machine::run(&mut test_build())?;
    Ok(Tally::passed(1))
}

/// Unit tests of every crate, and the examples in the documentation.
pub fn unit() -> anyhow::Result<Tally> {
    Ok(nextest("kind(lib) | kind(bin)", "default")?.and(documentation()?))
}

/// Integration tests that take long, or tolerate BPF programs that a busy host skips (docs/internals/kernels.md). On this machine only the
/// matrix runs them; virtual machines run them without tolerance.
const SOAKS: &[&str] = &[
    "quantiles::",
    "churn::",
    "busy::",
    "floods::",
    "garbage::random_frames",
    "storm::a_long_storm",
    "conditions::a_cpu_that_goes_offline",
    "conditions::a_sidecar_that_is_stopped_for",
    "workloads::retransmits::",
    "workloads::filtered::",
    "grouping::packets_are_told_apart",
    "transmit::a_slow_link",
    "transmit::a_long_queue",
    "transmit::packets_that_the_filter_chooses",
    "workloads::charges::receivers_do_not_pay_for_a_flood",
];

/// Most tests start sidecars at the level `detailed`. These run once more at the level `normal`, whose programs differ.
pub const BY_LEVEL: &[&str] = &["waits::", "slow::slow_packets", "workloads::passed::", "workloads::rtt::"];
/// The variable that sets the level of sidecars whose tests name none.
pub const LEVEL_NORMAL: (&str, &str) = ("UNDERCURRENT_TEST_LEVEL", "normal");

/// Integration tests on this machine's kernel.
pub fn native() -> anyhow::Result<Tally> {
    packages::install(&["iproute2", "nftables"])?;
    let tally = nextest(&format!("kind(test) & !test(/vm_/) & !({})", soaks()), "default")?;
    Ok(tally.and(nextest_with(&either(BY_LEVEL), "default", &[LEVEL_NORMAL])?))
}

/// Integration tests on this machine's kernel that [`native`] leaves out.
pub fn native_soaks() -> anyhow::Result<Tally> {
    packages::install(&["iproute2"])?;
    nextest(&format!("kind(test) & ({})", soaks()), "default")
}

fn soaks() -> String {
    either(SOAKS)
}

/// Returns the filter for tests with one of these prefixes.
fn either(prefixes: &[&str]) -> String {
    prefixes.iter().map(|prefix| format!("test(/^{prefix}/)")).collect::<Vec<_>>().join(" | ")
}

/// Tests of `cargo xtask vm`.
pub fn virtual_machines() -> anyhow::Result<Tally> {
    nextest("package(xtask-vm) & binary(vm)", "only")
}

/// How the sidecar in the kernel suite is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sidecar {
    /// The profile `dev` unchanged.
    Unoptimized,
    /// Optimized with its libraries, for guests that start it many times. A start takes half as long, the build three minutes more.
    Optimized,
}

/// The kernel suite's binary, built with the sidecar that it starts.
pub fn suite(sidecar: Sidecar) -> anyhow::Result<PathBuf> {
    let mut command = test_build();
    if sidecar == Sidecar::Optimized {
        command.args(["--config", "profile.dev.opt-level=1"]);
    }
    artifacts::build(&mut command, &SUITE)
}

/// The sidecar that tests start.
pub fn sidecar() -> anyhow::Result<PathBuf> {
    artifacts::build(&mut test_build(), &SIDECAR)
}

/// Always the whole workspace: cargo unifies features over the selected packages, so another selection rebuilds dependencies.
fn test_build() -> Command {
    let mut command = cargo::command();
    command.args(["test", "--locked", "--no-run", "--workspace"]);
    command
}

/// Runs the tests that a filter selects and counts them. Prints the output of tests that failed. `ignored` is the value of
/// `--run-ignored`: `default` or `only`.
fn nextest(filter: &str, ignored: &str) -> anyhow::Result<Tally> {
    nextest_with(filter, ignored, &[])
}

/// As [`nextest`], with variables in the environment of the tests.
fn nextest_with(filter: &str, ignored: &str, variables: &[(&str, &str)]) -> anyhow::Result<Tally> {
    let skips = tempfile::NamedTempFile::new().context("cannot create a file for skips")?;
    let errors = tempfile::NamedTempFile::new().context("cannot create a file for measured errors")?;
    let report = machine::workspace().join(REPORT);
    // Remove the report of an earlier run.
    let _ = fs::remove_file(&report);
    let mut command = Command::new(tools::path("cargo-nextest")?);
    command.current_dir(machine::workspace());
    command.args([
        "nextest",
        "run",
        "--locked",
        "--workspace",
        "--profile",
        PROFILE,
        "--run-ignored",
        ignored,
        "-E",
        filter,
    ]);
    command.envs(variables.iter().copied());
    // A snapshot that differs is a failure here, not a file to review.
    command.env("INSTA_UPDATE", "no").env("UNDERCURRENT_SKIPS", skips.path());
    command.env(truth::RESULTS, errors.path());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.code() == Some(TESTS_FAILED), "{command:?} failed: {}", output.status);
    }
    let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    let skipped = fs::read_to_string(skips.path()).context("cannot read the file of skips")?;
    let errors = fs::read_to_string(errors.path()).context("cannot read the file of measured errors")?;
    Ok(counted(&report)?.with_skips(&skipped)?.with_errors(&errors))
}

/// Reads a JUnit report.
fn counted(report: &str) -> anyhow::Result<Tally> {
    let document = roxmltree::Document::parse(report).context("the report of cargo-nextest is not XML")?;
    let mut tally = Tally::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let failed = case.children().any(|child| child.has_tag_name("failure") || child.has_tag_name("error"));
        let seconds: f64 = case.attribute("time").and_then(|time| time.parse().ok()).context("a test has no time")?;
        let test = case.attribute("name").context("a test has no name")?.to_owned();
        if failed {
            tally.failed += 1;
            tally.failures.push(test.clone());
        } else {
            tally.passed += 1;
        }
        tally.timings.push(Timing { test, took: Duration::try_from_secs_f64(seconds)? });
    }
    Ok(tally)
}

/// Examples in the documentation, which cargo-nextest does not run.
fn documentation() -> anyhow::Result<Tally> {
    let mut command = cargo::command();
    command.args(["test", "--locked", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let Output { text, mut tally } = Output::read(BufReader::new(output.stdout.as_slice()))?;
    // cargo prints the results together, so the intervals between lines are not durations.
    tally.timings.clear();
    if !output.status.success() {
        print!("{text}{}", String::from_utf8_lossy(&output.stderr));
        if tally.failed == 0 {
            bail!("{command:?} failed: {}", output.status);
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted_and_timed() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="xtask" tests="2" failures="1" errors="0" time="1.5">
                <testsuite name="undercurrent::kernel" tests="2" failures="1">
                    <testcase name="latency::a" classname="undercurrent::kernel" time="1.250"/>
                    <testcase name="waits::b" classname="undercurrent::kernel" time="0.250">
                        <failure type="test failure">panicked</failure>
                    </testcase>
                </testsuite>
            </testsuites>"#;
        let tally = counted(report).unwrap();
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(tally.failures, ["waits::b"]);
        let timings: Vec<_> = tally.timings.iter().map(|of| (of.test.as_str(), of.took.as_secs_f64())).collect();
        assert_eq!(timings, [("latency::a", 1.25), ("waits::b", 0.25)]);
        assert!(counted("<testcase/>").is_err() && counted("no report").is_err());
    }
}
