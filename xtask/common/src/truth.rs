//! `docs/truth.md`: errors of exported metrics that tests measured.

use std::{io::Write as _, path::Path};

use anyhow::Context as _;

use crate::{cargo, machine};

/// Names the file that tests append measured errors to.
pub const RESULTS: &str = "UNDERCURRENT_TRUTH";

/// Writes measured errors, one a line as tests print them, into the page. The test that compares the page renders it.
///
/// # Errors
/// If the test fails, or the lines cannot be handed to it.
pub fn write(lines: &[String]) -> anyhow::Result<()> {
    let mut results = tempfile::NamedTempFile::new().context("cannot create a file for measured errors")?;
    lines.iter().try_for_each(|line| writeln!(results, "{line}")).context("cannot write measured errors")?;
    write_from(results.path())
}

/// Writes the measured errors in a file into the page.
///
/// # Errors
/// If the test fails.
pub fn write_from(results: &Path) -> anyhow::Result<()> {
    let mut test = cargo::command();
    test.args(["test", "--quiet", "--package", "undercurrent", "--test", "catalogue", "the_truths_are_committed"]);
    machine::run(test.env("UPDATE_DOCS", "1").env("UNDERCURRENT_TRUTH_RESULTS", results))
}
