//! Output of Rust's test harness, read line by line as it arrives.

use std::{io::BufRead, time::Instant};

use anyhow::Context as _;
use xtask_common::tally::{Tally, Timing};

/// The output of one or more test binaries.
#[derive(Default)]
pub struct Output {
    /// Everything that was printed.
    pub text: String,
    /// The counts, and the durations where tests ran one at a time.
    pub tally: Tally,
}

impl Output {
    /// Reads until the end of the stream. A test's duration is the time between its line and the one before it, so it is
    /// meaningful only under `--test-threads=1`.
    ///
    /// # Errors
    /// If reading fails, or a result line has no counts.
    pub fn read(mut reader: impl BufRead) -> anyhow::Result<Self> {
        let mut output = Self::default();
        let mut last = Instant::now();
        loop {
            let start = output.text.len();
            if reader.read_line(&mut output.text).context("cannot read the output of the tests")? == 0 {
                return Ok(output);
            }
            let line = output.text[start..].trim_end();
            add_line(&mut output.tally, line, || std::mem::replace(&mut last, Instant::now()).elapsed())?;
        }
    }
}

/// Adds one line to a tally. `took` returns the time since the last test.
fn add_line(tally: &mut Tally, line: &str, took: impl FnOnce() -> std::time::Duration) -> anyhow::Result<()> {
    if let Some(result) = line.strip_prefix("test result: ") {
        let [passed, failed] = ["passed", "failed"].map(|word| count(result, word));
        tally.passed += passed.with_context(|| format!("no count in {line:?}"))?;
        tally.failed += failed.with_context(|| format!("no count in {line:?}"))?;
    } else if line.starts_with("running ") {
        // The first test starts now.
        took();
    } else if let Some((test, result)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
        match result.strip_prefix("ignored") {
            Some(reason) => {
                let reason = reason.strip_prefix(", ").unwrap_or("ignored, no reason given");
                tally.skipped.push(format!("{test}: {reason}"));
            }
            None => {
                tally.timings.push(Timing { test: test.to_owned(), took: took() });
                tally.failures.extend((result == "FAILED").then(|| test.to_owned()));
            }
        }
    }
    Ok(())
}

/// The number before a word, as in `ok. 5 passed; 0 failed; 1 ignored`.
fn count(result: &str, word: &str) -> Option<u32> {
    result.split(['.', ';']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
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
        let Output { text, tally } = Output::read(OUTPUT.as_bytes()).unwrap();
        assert_eq!(text, OUTPUT);
        assert_eq!((tally.passed, tally.failed), (3, 1));
        assert_eq!((tally.skipped, tally.failures), (vec!["b: needs a second CPU".to_owned()], vec!["c".to_owned()]));
        let timed: Vec<_> = tally.timings.iter().map(|timing| timing.test.as_str()).collect();
        assert_eq!(timed, ["a", "c", "d", "e"]);
    }

    #[test]
    fn a_result_without_counts_is_an_error() {
        let Err(error) = Output::read("test result: ok. many passed; 0 failed".as_bytes()) else { panic!("no error") };
        assert!(error.to_string().contains("many passed"), "{error}");
    }
}
