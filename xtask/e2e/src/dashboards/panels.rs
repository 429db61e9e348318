//! The queries of the dashboards' panels against a real Prometheus.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use xtask_e2e::prometheus::running::Prometheus;

/// Values of Grafana's variables: everything, as the option All selects.
const VARIABLES: [(&str, &str); 4] =
    [("$__rate_interval", "1m"), ("$host", ".*"), ("$namespace", ".*"), ("$workload", ".*")];
/// The label with the name of a workload.
const WORKLOAD: &str = "workload";
/// Start of a variable with values of a label.
const LABEL: &str = "label_values(";
/// Start of a variable with values of a query.
const RESULT: &str = "query_result(";
/// The panel whose values are zero.
const GAP: &str = "Attribution gap";
/// The largest gap in watts, of meters with 55 W. The ranges of both rates may end at different samples.
const LARGEST_GAP: f64 = 1.0;

/// A panel that may have no data here.
pub struct Empty {
    /// The title.
    pub title: &'static str,
    /// Why it has no data.
    pub reason: &'static str,
}

#[derive(Deserialize)]
struct Dashboard {
    title: String,
    panels: Vec<Panel>,
    templating: Templating,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    #[serde(default)]
    query: String,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    #[serde(default)]
    targets: Vec<Target>,
}

/// A query of Prometheus; of other data sources, the fields are absent.
#[derive(Deserialize)]
struct Target {
    #[serde(default)]
    expr: Option<String>,
    #[serde(default)]
    exemplar: bool,
}

impl Panel {
    /// Returns the queries of Prometheus with their targets.
    fn queries(&self) -> impl Iterator<Item = (&str, &Target)> {
        self.targets.iter().filter_map(|target| Some((target.expr.as_deref()?, target)))
    }
}

/// Runs every query of every panel. `workloads` are the names that each panel by workload must show, except the panels in `empty`.
///
/// # Errors
/// If Prometheus refuses a query, or a panel has no data and is not in `empty`.
pub fn run(prometheus: &Prometheus, workloads: &[&str], empty: &[Empty]) -> anyhow::Result<()> {
    let mut unused: BTreeSet<&str> = empty.iter().map(|panel| panel.title).collect();
    let mut count = 0;
    for dashboard in dashboards()? {
        variables(prometheus, &dashboard, workloads)?;
        for panel in dashboard.panels.iter().filter(|panel| panel.queries().next().is_some()) {
            let name = format!("{}: {}", dashboard.title, panel.title);
            let exception = empty.iter().find(|one| one.title == panel.title);
            let expected = if exception.is_some() { &[] } else { workloads };
            let has_data = has_data(prometheus, panel, expected).with_context(|| name.clone())?;
            count += 1;
            match exception {
                None => ensure!(has_data, "{name} has no data"),
                Some(Empty { title, reason }) => {
                    unused.remove(title);
                    println!("e2e dashboards: {name}: {} ({reason})", if has_data { "has data" } else { "no data" });
                }
            }
        }
    }
    ensure!(unused.is_empty(), "no panels have the titles {unused:?}");
    println!("e2e dashboards: {count} panels were queried");
    Ok(())
}

/// Returns true if every panel with one of these titles has data.
pub fn have_data(prometheus: &Prometheus, titles: &[&str]) -> anyhow::Result<bool> {
    let dashboards = dashboards()?;
    for panel in dashboards.iter().flat_map(|dashboard| &dashboard.panels) {
        if titles.contains(&panel.title.as_str()) && !has_data(prometheus, panel, &[])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads all dashboards.
fn dashboards() -> anyhow::Result<Vec<Dashboard>> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no dashboard", path.display()))
    };
    super::files()?.into_iter().map(read).collect()
}

/// Checks that the queries of the variables return values, and all workloads.
fn variables(prometheus: &Prometheus, dashboard: &Dashboard, workloads: &[&str]) -> anyhow::Result<()> {
    for variable in &dashboard.templating.list {
        let query = with_values(&variable.query);
        if let Some((metric, label)) = arguments(&query, LABEL).and_then(|rest| rest.rsplit_once(", ")) {
            let found = prometheus.query(&format!("count by ({label}) ({metric})"))?;
            let has_values = found.iter().any(|sample| sample.labels.contains_key(label));
            ensure!(has_values, "{query} has no values");
        }
        let Some(query) = arguments(&query, RESULT) else { continue };
        let found = names(prometheus, query)?;
        ensure!(workloads.iter().all(|name| found.contains(*name)), "the variable has only the workloads {found:?}");
    }
    Ok(())
}

/// Returns the arguments of a function call.
fn arguments<'a>(query: &'a str, function: &str) -> Option<&'a str> {
    query.strip_prefix(function)?.strip_suffix(')')
}

/// Returns true if the queries of a panel return data: any of them, because some need events that a run may lack.
fn has_data(prometheus: &Prometheus, panel: &Panel, workloads: &[&str]) -> anyhow::Result<bool> {
    let mut has_data = false;
    for (query, target) in panel.queries() {
        let query = with_values(query);
        // A histogram has no number, so the series are counted.
        let series = prometheus.query(&format!("count({query})"))?;
        has_data |= !series.is_empty();
        if panel.title == GAP {
            let gaps = prometheus.query(&query)?;
            ensure!(gaps.iter().all(|gap| gap.value.abs() < LARGEST_GAP), "{gaps:?}");
        }
        if target.exemplar && prometheus.exemplars(&query)?.is_empty() {
            bail!("no exemplars");
        }
        if query.contains(&format!("by ({WORKLOAD}, instance)")) && !series.is_empty() {
            let found = names(prometheus, &query)?;
            ensure!(!found.contains(""), "a workload has no name: {found:?}");
            let missing: Vec<_> = workloads.iter().filter(|name| !found.contains(**name)).collect();
            ensure!(missing.is_empty(), "no series of {missing:?}, only of {found:?}");
        }
    }
    Ok(has_data)
}

/// Returns the names of workloads in a result.
fn names(prometheus: &Prometheus, query: &str) -> anyhow::Result<BTreeSet<String>> {
    let samples = prometheus.query(&format!("count by ({WORKLOAD}) ({query})"))?;
    Ok(samples.into_iter().map(|mut sample| sample.labels.remove(WORKLOAD).unwrap_or_default()).collect())
}

fn with_values(query: &str) -> String {
    VARIABLES.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value))
}
