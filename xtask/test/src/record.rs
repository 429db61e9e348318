//! `docs/matrix.md`: the outcome of the last complete run of the matrix.

use std::{
    fmt::Write as _,
    fs,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use xtask_common::{artifacts, machine, truth};

use super::{
    parts::PARTS,
    report::{self, Section},
};

/// The page, below the workspace.
const PAGE: &str = "docs/matrix.md";

/// The checkout and the time when the run began.
pub struct State {
    commit: String,
    is_modified: bool,
    date: String,
    start: Instant,
}

impl State {
    /// Reads the checkout's commit and the clock.
    ///
    /// # Errors
    /// If git fails.
    pub fn now() -> anyhow::Result<Self> {
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            machine::output(command.args(arguments).current_dir(machine::workspace()))
        };
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Ok(Self {
            commit: git(&["rev-parse", "HEAD"])?.trim().to_owned(),
            is_modified: !git(&["status", "--porcelain"])?.is_empty(),
            date: date.split('T').next().unwrap_or_default().to_owned(),
            start: Instant::now(),
        })
    }
}

/// Writes the page, and the errors that tests measured into docs/truth.md.
///
/// # Errors
/// If the cache of kernels cannot be read, or a page cannot be written.
pub fn write(state: &State, sections: &[Section]) -> anyhow::Result<()> {
    let path = machine::workspace().join(PAGE);
    let page = render(state, state.start.elapsed(), sections, &kernels()?);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    truth::write(&report::total(sections).errors)
}

/// The name and release of this machine's kernel and of every kernel in the cache.
fn kernels() -> anyhow::Result<Vec<(String, String)>> {
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let listed = machine::output(Command::new(artifacts::member("xtask-vm")?).args(["vm", "--releases"]))?;
    let guests =
        listed.lines().filter_map(|line| line.split_once(' ')).map(|(name, release)| (name.into(), release.into()));
    Ok(std::iter::once(("native".to_owned(), host)).chain(guests).collect())
}

fn render(state: &State, took: Duration, sections: &[Section], kernels: &[(String, String)]) -> String {
    let total = report::total(sections);
    let modified = if state.is_modified { ", with changes that were not committed" } else { "" };
    let mut page = format!(
        "# Matrix\n\nThe last complete run of `cargo xtask test --matrix`, which writes this page.\n\n\
         - Result: {} passed, {} failed, {} skipped, in {:.0} minutes\n\
         - Commit: `{}`{modified}\n\
         - Date: {}\n\n\
         ## Kernels\n\n| name | release |\n|---|---|\n",
        total.passed,
        total.failed,
        total.skipped.len(),
        took.as_secs_f64() / 60.0,
        state.commit,
        state.date,
    );
    // Writing to a string cannot fail.
    kernels.iter().for_each(|(name, release)| _ = writeln!(page, "| {name} | `{release}` |"));
    page += "\n## Parts\n\n| part | verifies | passed | failed | skipped | minutes |\n|---|---|--:|--:|--:|--:|\n";
    for Section { name, tally, took } in sections {
        let about = PARTS.iter().find(|part| part.name == *name).map_or("", |part| part.about);
        let (skipped, minutes) = (tally.skipped.len(), took.as_secs_f64() / 60.0);
        let _ = writeln!(page, "| {name} | {about} | {} | {} | {skipped} | {minutes:.1} |", tally.passed, tally.failed);
    }
    let failures = report::failures(sections);
    if !failures.is_empty() {
        let _ = write!(page, "\n## Failed\n\n```text\n{failures}```\n");
    }
    let _ = write!(page, "\n## Slowest tests\n\n```text\n{}```\n", report::slowest(sections));
    let skips = report::skips(sections);
    if !skips.is_empty() {
        let _ = write!(page, "\n## Skipped\n\n```text\n{skips}```\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use xtask_common::tally::Tally;

    use super::*;

    #[test]
    fn the_page_names_result_commit_date_kernels_and_parts() {
        let state = |is_modified| State {
            commit: "0123abc".into(),
            is_modified,
            date: "2026-11-24".into(),
            start: Instant::now(),
        };
        let tally = Tally {
            failed: 1,
            failures: vec!["waits::b".into()],
            ..Tally::passed(41).and_skipped("a: no IPv6".into())
        };
        let sections = [Section { name: "vm-7", tally, took: Duration::from_secs(90) }];
        let kernels = [("7".to_owned(), "7.2.13-cloud".to_owned())];
        let page = render(&state(false), Duration::from_secs(3600), &sections, &kernels);
        for expected in [
            "- Result: 41 passed, 1 failed, 1 skipped, in 60 minutes\n- Commit: `0123abc`\n- Date: 2026-11-24\n",
            "| 7 | `7.2.13-cloud` |",
            "| vm-7 | latency under the newest Linux 7 by every set of hooks | 41 | 1 | 1 | 1.5 |",
            "skipped in vm-7: a: no IPv6\n",
            "failed in vm-7: waits::b\n",
        ] {
            assert!(page.contains(expected), "{expected:?} is not in\n{page}");
        }
        assert!(render(&state(true), Duration::ZERO, &sections, &kernels).contains("`0123abc`, with changes"));
    }
}
