//! Counting tests.

use anyhow::{Context as _, ensure};

/// What came of a suite's tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: u32,
    /// How many failed.
    pub failed: u32,
    /// Why each of the others was skipped.
    pub skipped: Vec<String>,
}

impl Tally {
    /// So many passed.
    pub fn passed(passed: u32) -> Self {
        Self { passed, ..Self::default() }
    }

    /// So many failed.
    pub fn failed(failed: u32) -> Self {
        Self { failed, ..Self::default() }
    }

    /// And what came of others.
    pub fn and(mut self, others: Self) -> Self {
        self.passed += others.passed;
        self.failed += others.failed;
        self.skipped.extend(others.skipped);
        self
    }

    /// And one was skipped, for this reason.
    pub fn and_skipped(mut self, reason: String) -> Self {
        self.skipped.push(reason);
        self
    }

    /// Counts from what Rust's test harness printed, over all binaries that ran.
    pub fn of_libtest(output: &str) -> anyhow::Result<Self> {
        let mut tally = Self::default();
        for line in output.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                let [passed, failed] = ["passed", "failed"].map(|what| count(result, what));
                tally.passed += passed.with_context(|| format!("no count in {line:?}"))?;
                tally.failed += failed.with_context(|| format!("no count in {line:?}"))?;
            } else if let Some((test, ignored)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ignored"))
            {
                let reason = ignored.strip_prefix(", ").unwrap_or("ignored, no reason given");
                tally.skipped.push(format!("{test}: {reason}"));
            }
        }
        Ok(tally)
    }

    /// Moves those tests from passed to skipped that said so themselves: the harness has no word for it, so a test
    /// that finds it cannot run here appends a line `SKIPPED: reason` to the file that `UNDERCURRENT_SKIPS` names.
    pub fn with_skips(mut self, file: &str) -> anyhow::Result<Self> {
        for line in file.lines() {
            let reason = line.strip_prefix("SKIPPED: ").with_context(|| format!("{line:?} is no skip"))?;
            self.skipped.push(reason.to_owned());
            self.passed = self.passed.checked_sub(1).context("more tests said that they skipped than passed")?;
        }
        Ok(self)
    }

    /// Refuses a suite that showed nothing.
    pub fn verified(self) -> anyhow::Result<Self> {
        let ran = self.passed + self.failed;
        ensure!(ran > 0 || !self.skipped.is_empty(), "it ran no test");
        ensure!(ran > 0, "it skipped everything: {}", self.skipped.join("; "));
        Ok(self)
    }
}

/// The number before a word, as in `ok. 5 passed; 0 failed; 1 ignored`.
fn count(result: &str, what: &str) -> Option<u32> {
    result.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a ... ok
test b ... ignored, needs a second CPU
test c ... FAILED

failures:
    c

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 2 tests
test d ... ok
test e ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 10.00s
";

    #[test]
    fn all_binaries_of_a_run_are_counted() {
        let skipped = vec!["b: needs a second CPU".to_owned()];
        assert_eq!(Tally::of_libtest(OUTPUT).unwrap(), Tally { passed: 3, failed: 1, skipped });
    }

    #[test]
    fn a_result_without_counts_is_an_error() {
        let error = Tally::of_libtest("test result: ok. many passed; 0 failed").unwrap_err();
        assert!(error.to_string().contains("many passed"), "{error}");
    }

    #[test]
    fn a_test_that_says_it_skipped_did_not_pass() {
        let tally = Tally::passed(3).with_skips("SKIPPED: no IPv6\nSKIPPED: no BTF\n").unwrap();
        assert_eq!(tally, Tally { passed: 1, failed: 0, skipped: vec!["no IPv6".into(), "no BTF".into()] });
        assert!(Tally::passed(0).with_skips("SKIPPED: no IPv6").is_err());
        assert!(Tally::passed(1).with_skips("skipped").is_err());
    }

    #[test]
    fn a_suite_that_showed_nothing_is_refused() {
        assert!(Tally::default().verified().unwrap_err().to_string().contains("no test"));
        let skipped = Tally::default().and_skipped("no root".into()).verified();
        assert!(skipped.unwrap_err().to_string().contains("no root"));
        assert!(Tally::passed(1).and_skipped("no root".into()).verified().is_ok());
        assert!(Tally::failed(1).verified().is_ok());
    }
}
