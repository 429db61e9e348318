//! Counts of tests, also across processes.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::machine;

/// The option of a command that writes its tally to a file.
const OPTION: &str = "--tally";

/// The outcome of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of tests that passed.
    pub passed: u32,
    /// Number of tests that failed.
    pub failed: u32,
    /// Names of tests that failed, as far as the suite reports names.
    pub failures: Vec<String>,
    /// One reason for each skipped test.
    pub skipped: Vec<String>,
    /// Duration of each test, where the suite reports durations.
    pub timings: Vec<Timing>,
    /// Errors of metrics that tests measured against a truth, one line each.
    pub errors: Vec<String>,
}

/// How long one test took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Path of the test, such as `latency::every_layer`.
    pub test: String,
    /// Wall-clock time.
    pub took: Duration,
}

impl Tally {
    /// A suite of `passed` tests, all passed.
    pub fn passed(passed: u32) -> Self {
        Self { passed, ..Self::default() }
    }

    /// A suite of `failed` tests, all failed.
    pub fn failed(failed: u32) -> Self {
        Self { failed, ..Self::default() }
    }

    /// The sum of two suites.
    pub fn and(mut self, other: Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
        self.timings.extend(other.timings);
        self.errors.extend(other.errors);
        self
    }

    /// Adds one skipped test.
    pub fn and_skipped(mut self, reason: String) -> Self {
        self.skipped.push(reason);
        self
    }

    /// Moves tests from passed to skipped. `file` is the content of the file that `UNDERCURRENT_SKIPS` names: a test that cannot
    /// run on this machine appends a line `SKIPPED: reason`, because Rust's harness has no such result.
    pub fn with_skips(mut self, file: &str) -> anyhow::Result<Self> {
        for line in file.lines() {
            let reason =
                line.strip_prefix("SKIPPED: ").with_context(|| format!("{line:?} does not start with SKIPPED"))?;
            self.skipped.push(reason.to_owned());
            self.passed = self.passed.checked_sub(1).context("more tests were skipped than passed")?;
        }
        Ok(self)
    }

    /// Runs a command that accepts the option `--tally FILE`, and returns the tally that it writes.
    pub fn run(command: &mut Command) -> anyhow::Result<Self> {
        let file = tempfile::NamedTempFile::new().context("cannot create a file for a tally")?;
        machine::run(command.arg(OPTION).arg(file.path()))?;
        let written = fs::read(file.path()).context("cannot read a tally")?;
        serde_json::from_slice(&written).with_context(|| format!("{command:?} wrote no tally"))
    }

    /// Writes the tally to the file that `--tally` names.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        fs::write(file, serde_json::to_vec(self)?).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Adds measured errors. `file` is the content of the file that [`RESULTS`](crate::truth::RESULTS) names.
    pub fn with_errors(mut self, file: &str) -> Self {
        self.errors.extend(file.lines().map(str::to_owned));
        self
    }

    /// Returns an error if the suite verified nothing.
    pub fn verified(self) -> anyhow::Result<Self> {
        let ran = self.passed + self.failed;
        ensure!(ran > 0 || !self.skipped.is_empty(), "no test ran");
        ensure!(ran > 0, "all tests were skipped: {}", self.skipped.join("; "));
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_reaches_the_parent_process() {
        let tally = Tally::passed(2).and_skipped("no IPv6".into());
        let file = tempfile::NamedTempFile::new().unwrap();
        tally.write(file.path()).unwrap();
        let mut copy = Command::new("sh");
        copy.args(["-c", r#"cp "$1" "$3""#, "sh"]).arg(file.path());
        assert_eq!(Tally::run(&mut copy).unwrap(), tally);
        assert!(Tally::run(&mut Command::new("true")).is_err());
    }

    #[test]
    fn a_skipped_test_does_not_count_as_passed() {
        let tally = Tally::passed(3).with_skips("SKIPPED: no IPv6\nSKIPPED: no BTF\n").unwrap();
        let expected = Tally { passed: 1, skipped: vec!["no IPv6".into(), "no BTF".into()], ..Tally::default() };
        assert_eq!(tally, expected);
        assert!(Tally::passed(0).with_skips("SKIPPED: no IPv6").is_err());
        assert!(Tally::passed(1).with_skips("skipped").is_err());
    }

    #[test]
    fn a_suite_that_verified_nothing_is_an_error() {
        assert!(Tally::default().verified().unwrap_err().to_string().contains("no test"));
        let skipped = Tally::default().and_skipped("no root".into()).verified();
        assert!(skipped.unwrap_err().to_string().contains("no root"));
        assert!(Tally::passed(1).and_skipped("no root".into()).verified().is_ok());
        assert!(Tally::failed(1).verified().is_ok());
    }
}
