//! `docs/truth.md`: the list with the last measured errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use super::{
    errors::Measured,
    table::{Allowed, Comparison, Truths},
};

/// The page, below the workspace.
pub const PAGE: &str = "docs/truth.md";
const HEAD: &str = "<!-- Made from receiver/tests/truth/metrics.yaml and from test runs. `cargo xtask docs` writes it anew. -->

# Truth

An independent source of the true value of every exported metric, and the test that compares the two. The source is a counter of
the kernel, arithmetic from a known rate, ftrace, or a second implementation. `receiver/tests/truth/metrics.yaml` is the list;
a metric without an entry fails the tests.

The errors come from test runs. `cargo xtask test --matrix` records them, and of several runs of a test the largest error. A true
value that is read before and after a snapshot has two bounds; an error is the distance to the nearer bound. \"Native\" is the
allowed error on a real machine, where other programs add traffic and where the kernel may skip runs of programs
([Kernels](internals/kernels.md#skipped-runs)). Tests are in `receiver/tests/kernel/`.

| metric | truth | test | allowed error | last error | measured, true value | kernel, date |
|---|---|---|---|--:|---|---|
";
const FOOT: &str = "
## Conditions

The tests in `conditions.rs` run the sidecar on an idle host, on a host with every CPU busy, while a CPU goes offline and returns,
while the sidecar is stopped for seconds and for half a minute and misses intervals, across a restart, and in a virtual machine
while the wall clock is set by an hour in both directions. In each of them the datagrams that were counted are those that the
kernel counted. In the lines of each run no cumulative point of a start time decreases, no bucket decreases, CPU time grows by at
most the elapsed time on all CPUs, and no counter grows faster than events can happen.
";
const UNKNOWN: &str = "not recorded";
/// Columns that come from a test run.
const MEASURED: usize = 3;

/// The columns of a row that come from a test run, by metric and test.
pub type Columns = BTreeMap<(String, String), [String; MEASURED]>;

/// Renders the page.
pub fn render(truths: &Truths, columns: &Columns) -> String {
    let mut page = HEAD.to_owned();
    for (metric, comparison) in truths.iter().flat_map(|(metric, all)| all.iter().map(move |one| (metric, one))) {
        let Comparison { truth, test, allowed, native } = comparison;
        let native = native.map(|native| format!("; native {}", bound(native))).unwrap_or_default();
        let unknown = || [UNKNOWN.to_owned(), String::new(), String::new()];
        let [error, values, run] = columns.get(&(metric.clone(), test.clone())).cloned().unwrap_or_else(unknown);
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{metric}` | {truth} | `{test}` | {}{native} | {error} | {values} | {run} |",
            bound(*allowed)
        );
    }
    page + FOOT
}

fn bound(allowed: Allowed) -> String {
    match (allowed.relative, allowed.absolute) {
        (0.0, 0.0) => "none".to_owned(),
        (relative, 0.0) => percent(relative),
        (0.0, absolute) => format!("{absolute}"),
        (relative, absolute) => format!("{} + {absolute}", percent(relative)),
    }
}

fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

/// Formats a number with at most four significant digits, without trailing zeros.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns the columns of the committed page.
pub fn committed(workspace: &Path) -> Columns {
    let page = fs::read_to_string(workspace.join(PAGE)).unwrap_or_default();
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<((String, String), [String; MEASURED])> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
    let [metric, _, test, _, error, values, run] = cells[..] else { return None };
    let name = |cell: &str| cell.trim_matches('`').to_owned();
    let measured = [error, values, run].map(|cell| cell.trim().to_owned());
    (measured[0] != UNKNOWN).then(|| ((name(metric), name(test)), measured))
}

/// Replaces the columns of the tests in a results file by the largest error of each.
pub fn update(columns: &mut Columns, results: &str) {
    let mut largest: BTreeMap<(String, String), Measured> = BTreeMap::new();
    for line in results.lines() {
        let measured: Measured = line.parse().unwrap_or_else(|_| panic!("{line:?} is no result of a test"));
        let key = (measured.metric.clone(), measured.test.clone());
        // Among equal errors, the one of the largest value is the most significant.
        let rank = |of: &Measured| [of.relative().abs(), *of.truth.end()];
        if largest.get(&key).is_none_or(|before| rank(before) < rank(&measured)) {
            largest.insert(key, measured);
        }
    }
    columns.extend(largest.into_iter().map(|(key, measured)| (key, cells(&measured))));
}

fn cells(measured: &Measured) -> [String; MEASURED] {
    let relative = measured.relative();
    let error = if relative.is_finite() { percent(relative) } else { number(measured.error()) };
    let (least, most) = measured.truth.clone().into_inner();
    let truth = match number(least) {
        low if least == most => low,
        low if most == f64::MAX => format!("at least {low}"),
        low => format!("{low} to {}", number(most)),
    };
    [error, format!("{}, {truth}", number(measured.value)), format!("{}, {}", measured.kernel, measured.date)]
}

/// Asserts that every metric has an entry, and that every entry names a metric and a test in the suite's sources.
pub fn assert_complete(truths: &Truths, metrics: &BTreeSet<&str>, suite: &Path) {
    let listed: BTreeSet<&str> = truths.keys().map(String::as_str).collect();
    assert_eq!(&listed, metrics, "receiver/tests/truth/metrics.yaml does not list the metrics of the catalogue");
    for (metric, comparison) in truths.iter().flat_map(|(metric, all)| all.iter().map(move |one| (metric, one))) {
        assert!(!comparison.truth.is_empty(), "{metric} has no truth");
        assert!(exists(suite, &comparison.test), "{metric}: {} has no test `{}`", suite.display(), comparison.test);
    }
    assert!(truths.values().all(|comparisons| !comparisons.is_empty()), "a metric has an empty list");
}

/// Returns true if the suite has a test of this path that compares with a truth.
fn exists(suite: &Path, test: &str) -> bool {
    let Some((module, name)) = test.rsplit_once("::") else { return false };
    let module = suite.join(module.replace("::", "/"));
    let files = [module.with_extension("rs"), module.join("mod.rs")];
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let signature = format!("fn {name}() {{");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| *line == signature);
    let attributes =
        at.map(|at| lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect::<Vec<_>>());
    attributes.is_some_and(|attributes| attributes.contains(&&"#[test]")) && text.contains("record(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truths() -> Truths {
        let comparison = |test: &str| Comparison {
            truth: "a counter".to_owned(),
            test: test.to_owned(),
            allowed: Allowed { relative: 0.03, absolute: 0.0 },
            native: Some(Allowed { relative: 0.0, absolute: 2.0 }),
        };
        [("a.time".to_owned(), vec![comparison("one::a"), comparison("two::b")])].into()
    }

    fn result(test: &str, value: f64, truth: std::ops::RangeInclusive<f64>) -> String {
        let [metric, kernel, date] = ["a.time", "6.18", "2026-11-24"].map(str::to_owned);
        Measured { metric, test: test.to_owned(), value, truth, kernel, date }.line()
    }

    #[test]
    fn the_largest_error_of_a_test_is_on_the_page_and_stays_there() {
        let mut columns = Columns::new();
        let results =
            [result("one::a", 7.7, 7.8..=7.8), result("one::a", 7.8, 7.8..=7.8), result("one::a", 7.75, 7.8..=7.8)];
        update(&mut columns, &results.join("\n"));
        assert_eq!(columns.len(), 1);
        let page = render(&truths(), &columns);
        let row = "| `a.time` | a counter | `one::a` | 3%; native 2 | -1.282% | 7.7, 7.8 | 6.18, 2026-11-24 |\n";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| `a.time` | a counter | `two::b` | 3%; native 2 | not recorded |  |  |\n"), "{page}");
        let read: Columns = page.lines().filter_map(super::row).collect();
        assert_eq!(read, columns);
        assert_eq!(render(&truths(), &read), page);
    }

    #[test]
    fn bounds_and_zeros_are_shown() {
        let of = |value, truth| cells(&result("one::a", value, truth).parse().expect("a result"));
        assert_eq!(of(3.0, 2.0..=4.0)[..2], ["0%", "3, 2 to 4"]);
        assert_eq!(of(2.0, 0.0..=0.0)[..2], ["2", "2, 0"]);
        assert_eq!(of(123_456.0, 123_400.0..=123_400.0)[..2], ["0.04538%", "123456, 123400"]);
    }
}
