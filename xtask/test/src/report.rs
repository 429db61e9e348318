//! The report at the end of a test run.

use std::{
    cmp::Reverse,
    fmt::{self, Write as _},
    time::Duration,
};

use xtask_common::tally::{Tally, Timing};

/// Number of tests in the list of the slowest.
const SLOWEST: usize = 20;

/// A part that ran, or that this user cannot run.
pub struct Section {
    /// The part's name.
    pub name: &'static str,
    /// Its outcome.
    pub tally: Tally,
    /// Wall-clock time.
    pub took: Duration,
}

impl Section {
    /// A part that this user cannot run. It counts as one skip.
    pub fn left_out(name: &'static str) -> Self {
        Self { name, tally: Tally::default().and_skipped("needs root".into()), took: Duration::ZERO }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { passed, failed, skipped, .. } = &self.tally;
        write!(f, "{passed} passed, {failed} failed, {} skipped in {:.1} s", skipped.len(), self.took.as_secs_f64())
    }
}

/// The sum over all sections.
pub fn total(sections: &[Section]) -> Tally {
    sections.iter().fold(Tally::default(), |sum, section| sum.and(section.tally.clone()))
}

/// The table of all sections.
pub fn table(sections: &[Section]) -> String {
    let mut text = format!("{:<18} {:>7} {:>7} {:>7} {:>9}\n", "section", "passed", "failed", "skipped", "time");
    for Section { name, tally, took } in sections {
        let (seconds, skips) = (took.as_secs_f64(), tally.skipped.len());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<18} {:>7} {:>7} {skips:>7} {seconds:>7.1} s", tally.passed, tally.failed);
    }
    text
}

/// One line for each of the slowest tests.
pub fn slowest(sections: &[Section]) -> String {
    let mut tests: Vec<(&str, &Timing)> =
        sections.iter().flat_map(|section| section.tally.timings.iter().map(|timing| (section.name, timing))).collect();
    tests.sort_by_key(|(_, timing)| Reverse(timing.took));
    let mut text = String::new();
    for (section, Timing { test, took }) in tests.into_iter().take(SLOWEST) {
        let _ = writeln!(text, "{section:<18} {:>7.1} s  {test}", took.as_secs_f64());
    }
    text
}

/// One line for each failed test that has a name.
pub fn failures(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { name, tally, .. } in sections {
        tally.failures.iter().for_each(|test| _ = writeln!(text, "failed in {name}: {test}"));
    }
    text
}

/// One line for each skipped test.
pub fn skips(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { name, tally, .. } in sections {
        tally.skipped.iter().for_each(|reason| _ = writeln!(text, "skipped in {name}: {reason}"));
    }
    text
}

/// The whole report. Its last line counts all tests.
pub fn render(sections: &[Section]) -> String {
    let Tally { passed, failed, skipped, .. } = total(sections);
    let mut text = format!("\n{}", table(sections));
    for part in [slowest(sections), skips(sections), failures(sections)].iter().filter(|part| !part.is_empty()) {
        let _ = write!(text, "\n{part}");
    }
    format!("{text}\n{passed} passed, {failed} failed, {} skipped\n", skipped.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(test: &str, seconds: u64) -> Timing {
        Timing { test: test.to_owned(), took: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_last_line_counts_everything() {
        let section = |name, tally| Section { name, tally, took: Duration::from_millis(1234) };
        let unit = section("unit", Tally::passed(12).and_skipped("b: needs a second CPU".into()));
        let timings = vec![timing("a", 1), timing("b", 20)];
        let native = Tally { passed: 3, failed: 1, failures: vec!["b".into()], timings, ..Tally::default() };
        let expected = "
section             passed  failed skipped      time
unit                    12       0       1     1.2 s
native                   3       1       0     1.2 s

native                20.0 s  b
native                 1.0 s  a

skipped in unit: b: needs a second CPU

failed in native: b

15 passed, 1 failed, 1 skipped
";
        assert_eq!(render(&[unit, section("native", native)]), expected);
    }

    #[test]
    fn only_the_slowest_are_listed() {
        let timings = (0..50).map(|n| timing(&n.to_string(), n)).collect();
        let tally = Tally { timings, ..Tally::default() };
        let list = slowest(&[Section { name: "unit", tally, took: Duration::ZERO }]);
        assert_eq!(list.lines().count(), SLOWEST);
        assert!(list.starts_with("unit                  49.0 s  49\n"), "{list}");
    }
}
