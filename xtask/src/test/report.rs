//! What a test run shows at its end.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use super::Tally;

/// A part that ran, or was left out.
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What came of it.
    pub tally: Tally,
    /// How long it took.
    pub took: Duration,
}

impl Section {
    /// A part that this user cannot run: it counts as one skip.
    pub fn left_out(name: &'static str) -> Self {
        Self { name, tally: Tally::default().and_skipped("needs root".into()), took: Duration::ZERO }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { passed, failed, skipped } = &self.tally;
        write!(f, "{passed} passed, {failed} failed, {} skipped in {:.1} s", skipped.len(), self.took.as_secs_f64())
    }
}

/// The table, the reasons of what was skipped, and the line that counts everything, which is the last.
pub fn render(sections: &[Section]) -> String {
    let mut text = format!("\n{:<18} {:>7} {:>7} {:>7} {:>9}\n", "section", "passed", "failed", "skipped", "time");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut reasons = String::new();
    for Section { name, tally, took } in sections {
        let (seconds, skips) = (took.as_secs_f64(), tally.skipped.len());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<18} {:>7} {:>7} {skips:>7} {seconds:>7.1} s", tally.passed, tally.failed);
        tally.skipped.iter().for_each(|reason| _ = writeln!(reasons, "skipped in {name}: {reason}"));
        passed += tally.passed;
        failed += tally.failed;
        skipped += skips;
    }
    format!("{text}\n{reasons}{passed} passed, {failed} failed, {skipped} skipped\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_everything() {
        let section = |name, tally| Section { name, tally, took: Duration::from_millis(1234) };
        let unit = section("unit", Tally::passed(12).and_skipped("b: needs a second CPU".into()));
        let report = render(&[unit, section("native", Tally { passed: 3, failed: 1, skipped: Vec::new() })]);
        let expected = "
section             passed  failed skipped      time
unit                    12       0       1     1.2 s
native                   3       1       0     1.2 s

skipped in unit: b: needs a second CPU
15 passed, 1 failed, 1 skipped
";
        assert_eq!(report, expected);
    }
}
