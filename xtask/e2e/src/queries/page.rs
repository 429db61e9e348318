//! docs/prometheus.md: its queries with their results, and its table of the number of series.

use std::{fmt::Write as _, fs, ops::Range, path::PathBuf};

use anyhow::{Context as _, ensure};
use xtask_common::machine;
use xtask_e2e::prometheus::running::Sample;

/// Start and end of a query.
const QUERY: (&str, &str) = ("```promql\n", "\n```\n");
/// Head of the table of names.
const NAMES: &str = "| metric | in Prometheus |\n|---|---|\n";
/// Head of the table of the number of series.
const SERIES: &str = "| workloads | series |\n|--:|--:|\n";

/// The page.
pub struct Page {
    text: String,
}

/// A section with a query, and a table with the query's result.
#[derive(Debug, PartialEq)]
pub struct Query {
    /// The heading.
    pub title: String,
    /// The query.
    pub promql: String,
    /// The head of the table: one column for each label, then the value.
    pub columns: Vec<String>,
    /// The table's place in the page.
    table: Range<usize>,
}

impl Page {
    /// Reads the page in the checkout.
    pub fn read() -> anyhow::Result<Self> {
        let path = path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { text })
    }

    /// Returns every query with its section.
    ///
    /// # Errors
    /// If a query has no heading, no end or no table below it.
    pub fn queries(&self) -> anyhow::Result<Vec<Query>> {
        self.text.match_indices(QUERY.0).map(|(at, _)| self.query(at)).collect()
    }

    fn query(&self, at: usize) -> anyhow::Result<Query> {
        let title = self.text[..at].rsplit_once("\n### ").and_then(|(_, below)| below.lines().next());
        let title = title.context("a query has no heading")?.to_owned();
        let start = at + QUERY.0.len();
        let (promql, after) = self.text[start..].split_once(QUERY.1).with_context(|| format!("{title}: no end"))?;
        let below = self.text.len() - after.len();
        let table = below + after.find("\n|").with_context(|| format!("{title}: no table"))? + 1;
        let length = self.text[table..].find("\n\n").map_or(self.text.len() - table, |end| end + 1);
        ensure!(!self.text[below..table].contains("\n#"), "{title}: no table");
        let head = self.text[table..].lines().next().unwrap_or_default();
        let columns = head.trim_matches('|').split('|').map(|name| name.trim().to_owned()).collect();
        Ok(Query { title, promql: promql.to_owned(), columns, table: table..table + length })
    }

    /// Returns the rows of the table of series: the number of workloads, and the number of series.
    pub fn series(&self) -> anyhow::Result<Vec<(usize, usize)>> {
        let rows = &self.text[self.below(SERIES)?];
        let row = |line: &str| Some(line.trim_matches('|').split_once('|')?).map(|(a, b)| (parse(a), parse(b)));
        rows.lines().map(|line| row(line).and_then(|(a, b)| a.zip(b)).with_context(|| format!("{line:?}"))).collect()
    }

    /// Returns the rows of the table of names.
    pub fn names(&self) -> anyhow::Result<&str> {
        Ok(&self.text[self.below(NAMES)?])
    }

    /// Replaces the rows of the table of names.
    pub fn set_names(&mut self, rows: &str) -> anyhow::Result<()> {
        let old = self.below(NAMES)?;
        self.text.replace_range(old, rows);
        Ok(())
    }

    /// Returns the place of the rows of a table.
    fn below(&self, head: &str) -> anyhow::Result<Range<usize>> {
        let start = self.text.find(head).with_context(|| format!("the page has no table {head}"))? + head.len();
        let end = self.text[start..].find("\n\n").map_or(self.text.len(), |end| start + end + 1);
        Ok(start..end)
    }

    /// Replaces the result of a query.
    pub fn set_result(&mut self, query: &Query, format: impl Fn(f64) -> String, samples: &[Sample]) {
        let columns = query.columns.len();
        let mut table = format!("| {} |\n|{}--:|\n", query.columns.join(" | "), "---|".repeat(columns - 1));
        for Sample { labels, value } in samples {
            let cells = query.columns[..columns - 1].iter().map(|name| labels.get(name).map_or("", String::as_str));
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| {} | {} |", cells.collect::<Vec<_>>().join(" | "), format(*value));
        }
        self.text.replace_range(query.table.clone(), &table);
    }

    /// Replaces the table of series.
    pub fn set_series(&mut self, counts: &[(usize, usize)]) -> anyhow::Result<()> {
        let rows: Vec<_> = counts.iter().map(|(workloads, series)| format!("| {workloads} | {series} |\n")).collect();
        let old = self.below(SERIES)?;
        self.text.replace_range(old, &rows.concat());
        Ok(())
    }

    /// True if the page contains a text.
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// Writes the page.
    pub fn write(&self) -> anyhow::Result<()> {
        fs::write(path(), &self.text).context("cannot write docs/prometheus.md")
    }
}

fn path() -> PathBuf {
    machine::workspace().join("docs/prometheus.md")
}

fn parse(cell: &str) -> Option<usize> {
    cell.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::checks::CHECKS;

    const TEXT: &str = "# A\n\n### One\n\nText.\n\n```promql\nsum by (b) (\n  a)\n```\n\nThe result:\n\n| b | s |\n|---|--:|\n\
                        | x | 1 |\n\nMore.\n\n| workloads | series |\n|--:|--:|\n| 0 | 100 |\n| 2 | 150 |\n";

    fn page() -> Page {
        Page { text: TEXT.to_owned() }
    }

    #[test]
    fn queries_have_titles_and_columns() {
        let [query] = &page().queries().unwrap()[..] else { panic!("one query") };
        assert_eq!((query.title.as_str(), query.promql.as_str()), ("One", "sum by (b) (\n  a)"));
        assert_eq!(query.columns, ["b", "s"]);
        let nameless = Page { text: TEXT.replace("### ", "## ") };
        assert!(nameless.queries().is_err());
        let bare = Page { text: TEXT.replace("| b | s |", "### Two\n\n| b | s |") };
        assert!(bare.queries().is_err());
    }

    #[test]
    fn results_are_replaced() {
        let mut page = page();
        let query = page.queries().unwrap().remove(0);
        let samples = [("y", 2.0), ("z", 3.0)]
            .map(|(b, value)| Sample { labels: [("b".to_owned(), b.to_owned())].into(), value });
        page.set_result(&query, |value| format!("{value} s"), &samples);
        page.set_series(&[(0, 7), (10, 70)]).unwrap();
        assert_eq!(
            page.text,
            TEXT.replace("| x | 1 |", "| y | 2 s |\n| z | 3 s |")
                .replace("| 0 | 100 |\n| 2 | 150 |", "| 0 | 7 |\n| 10 | 70 |")
        );
        assert_eq!(page.series().unwrap(), [(0, 7), (10, 70)]);
    }

    #[test]
    fn every_query_has_a_check() {
        let queries = Page::read().unwrap().queries().unwrap();
        let titles: Vec<_> = queries.iter().map(|query| query.title.as_str()).collect();
        assert_eq!(titles, CHECKS.map(|check| check.title));
        assert!(queries.iter().any(|query| query.promql.contains("histogram_quantile(")), "no quantile is tested");
    }
}
