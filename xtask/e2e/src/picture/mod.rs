//! The pictures of the README, from one run of examples/docker-compose: the live table, a dashboard with the answers of Prometheus, and the trace
//! of an exemplar.

mod charts;
pub mod sample;
mod terminal;

use std::{fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use xtask_common::process;

use self::charts::Charts;
use super::{
    compose::{self, ARRIVAL, DASHBOARD, PROMETHEUS, Stack},
    engines::{Cgroups, Client, Docker, images},
    require_root,
};

/// The service that reads late.
const SERVICE: &str = "orders";
/// The rows of the dashboard that are drawn. The other ones have no data, because the bridge of an engine loses nothing.
const ROWS: [&str; 2] = ["Latency", "Resources"];
/// Panels in the picture.
const PANELS: usize = 6;
/// The range in the picture and the time between two points, in seconds, and the range of rates.
const RANGE: u64 = 180;
const STEP: u64 = 5;
const RATE: &str = "30s";

/// Runs the example, and writes table.svg, dashboard.svg and trace.svg into a folder.
pub fn draw(sidecar: &Path, folder: &Path) -> anyhow::Result<()> {
    require_root()?;
    let charts = Charts::install()?;
    let engine = Docker::start(Cgroups::Unified)?;
    images::provide(&engine, sidecar)?;
    let stack = Stack::build(&engine)?;
    let drawn = stack.up().and_then(|()| pictures(&engine, &stack, &charts, folder));
    drawn.with_context(|| format!("the containers logged:\n{}", stack.logs()))?;
    stack.down()?;
    engine.end()
}

fn pictures(engine: &Docker, stack: &Stack<'_>, charts: &Charts, folder: &Path) -> anyhow::Result<()> {
    let samples = format!(
        "query=count_over_time(undercurrent_cpu_time_seconds_total{{job=\"{SERVICE}\",container_name!=\"\",undercurrent_cpu_use=\"compute\"}}[{RANGE}s]) >= {}",
        RANGE / STEP - 1
    );
    process::wait_for("a range of samples", 3 * ARRIVAL, || {
        // There is no Prometheus before its container has started.
        let Ok(answer) = compose::fetch(engine, &format!("{PROMETHEUS}/query"), &[&samples]) else { return Ok(None) };
        let found = data(&answer)?["result"]
            .as_array()
            .and_then(|series| series.first()?["metric"]["instance"].as_str().map(str::to_owned));
        Ok(found)
    })
    .and_then(|instance| dashboard(engine, &instance))
    .and_then(|input| charts.draw("dashboard", &input, &folder.join("dashboard.svg")))?;
    let trace =
        process::wait_for("an exemplar that leads to a slow request", ARRIVAL, || compose::slow_request(engine))?;
    charts.draw("trace", &serde_json::to_value(trace)?, &folder.join("trace.svg"))?;
    let table = terminal::screen(engine, stack)?;
    for name in ["storefront", SERVICE, "load"] {
        ensure!(table.contains(name), "the service {name} is not on the screen:\n{table}");
    }
    let file = folder.join("table.svg");
    fs::write(&file, anstyle_svg::Term::new().render_svg(&table))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the data of an answer of Prometheus.
fn data(answer: &str) -> anyhow::Result<Value> {
    let mut answer: Value = serde_json::from_str(answer).with_context(|| format!("the answer {answer}"))?;
    if answer["status"] != "success" {
        bail!("Prometheus reported: {answer}");
    }
    Ok(answer["data"].take())
}

/// Returns the panels of the dashboard with the answers to their queries, for a workload by its instance.
fn dashboard(engine: &Docker, instance: &str) -> anyhow::Result<Value> {
    let dashboard = compose::dashboard()?;
    let now = data(&compose::fetch(engine, &format!("{PROMETHEUS}/query"), &["query=time()"])?)?;
    let end = now["result"][0].as_f64().context("Prometheus has no time")? as u64 / STEP * STEP;
    let range = [format!("start={}", end - RANGE), format!("end={end}"), format!("step={STEP}")];
    let ask = |resource: &str, query: &str| {
        let query = [("$__rate_interval", RATE), ("$host", ".*"), ("$namespace", ".*"), ("$workload", instance)]
            .iter()
            .fold(format!("query={query}"), |query, (name, value)| query.replace(name, value));
        let parameters: Vec<&str> = range.iter().chain([&query]).map(String::as_str).collect();
        data(&compose::fetch(engine, &format!("{PROMETHEUS}/{resource}"), &parameters)?)
    };
    let mut panels = Vec::new();
    for panel in of_rows(&dashboard) {
        let (mut answers, mut exemplars) = (Vec::new(), Vec::new());
        for target in panel["targets"].as_array().into_iter().flatten() {
            // The other queries are for Jaeger.
            let Some(query) = target["expr"].as_str() else { continue };
            answers.push(json!({"legendFormat": target["legendFormat"], "data": ask("query_range", query)?}));
            if target["exemplar"] == true {
                exemplars.extend(ask("query_exemplars", query)?.as_array().cloned().unwrap_or_default());
            }
        }
        // A host without meters has no energy.
        let has_data = |answer: &Value| answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty());
        if answers.iter().any(has_data) && panels.len() < PANELS {
            panels.push(json!({"panel": panel, "answers": answers, "exemplars": exemplars}));
        }
    }
    let titles: Vec<_> = panels.iter().map(|panel| &panel["panel"]["title"]).collect();
    ensure!(panels.len() == PANELS, "only the panels {titles:?} have data");
    let subtitle =
        format!("{SERVICE} of examples/docker-compose, in UTC; drawn from {DASHBOARD} and answers of Prometheus");
    Ok(json!({"title": dashboard["title"], "subtitle": subtitle, "start": end - RANGE, "end": end, "panels": panels}))
}

/// Returns the panels below the rows with the titles of [`ROWS`].
fn of_rows(dashboard: &Value) -> Vec<&Value> {
    let (mut is_drawn, mut panels) = (false, Vec::new());
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        if panel["type"] == "row" {
            is_drawn = ROWS.iter().any(|title| panel["title"] == *title);
        } else if is_drawn {
            panels.push(panel);
        }
    }
    panels
}
