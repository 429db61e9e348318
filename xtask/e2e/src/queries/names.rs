//! The names that Prometheus gives to all metrics of the sidecar. A run has only metrics with events.

use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use xtask_common::machine;
use xtask_e2e::prometheus::running::Prometheus;

use super::page::Page;

/// `service.name` of the metrics of this check.
const SERVICE: &str = "names";
/// The label with the name in OpenTelemetry.
const LABEL: &str = "metric";

/// The output of `undercurrent signals --json`.
#[derive(Deserialize)]
struct Registry {
    signals: Vec<Signal>,
}

#[derive(Deserialize)]
struct Signal {
    metrics: Vec<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    instrument: String,
    unit: String,
}

/// Sends one point of each metric in the sidecar's registry to Prometheus, and compares the names of the series with the page, or
/// writes them into the page.
pub fn check(prometheus: &Prometheus, sidecar: &Path, page: &mut Page, write: bool) -> anyhow::Result<()> {
    let listed = machine::output(Command::new(sidecar).args(["signals", "--json"]))?;
    let registry: Registry = serde_json::from_str(&listed).context("`undercurrent signals --json` is malformed")?;
    let metrics: Vec<_> = registry.signals.into_iter().flat_map(|signal| signal.metrics).collect();
    let points: Vec<_> = metrics.iter().map(metric).collect::<anyhow::Result<_>>()?;
    let attributes = [attribute("service.name", SERVICE)];
    let request = json!({"resourceMetrics": [{
        "resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": points}],
    }]});
    prometheus.send(&request.to_string())?;

    let series = prometheus.series(&format!(r#"{{job="{SERVICE}", {LABEL}!=""}}"#))?;
    ensure!(series.len() == metrics.len(), "{} metrics have {} series", metrics.len(), series.len());
    let mut rows = String::new();
    for Metric { name, .. } in &metrics {
        let labels = series.iter().find(|labels| labels.get(LABEL) == Some(name));
        let stored =
            labels.and_then(|labels| labels.get("__name__")).with_context(|| format!("no series of {name}"))?;
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "| `{name}` | `{stored}` |");
    }
    if write {
        page.set_names(&rows)?;
    }
    ensure!(
        page.names()? == rows,
        "Prometheus has other names than the page; `cargo xtask e2e prometheus --write` writes them:\n{rows}"
    );
    Ok(())
}

/// Returns a metric with one point in OTLP/JSON.
fn metric(metric: &Metric) -> anyhow::Result<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos().to_string();
    let Metric { name, instrument, unit } = metric;
    let attributes = [attribute(LABEL, name)];
    let number = json!([{"attributes": attributes, "timeUnixNano": now, "asDouble": 0.0}]);
    let histogram = json!([{"attributes": attributes, "timeUnixNano": now, "count": "1", "sum": 1.0, "scale": 2,
        "positive": {"offset": 0, "bucketCounts": ["1"]}}]);
    let sum = |monotonic| json!({"dataPoints": number, "aggregationTemporality": 2, "isMonotonic": monotonic});
    let (kind, data) = match instrument.as_str() {
        "counter" => ("sum", sum(true)),
        "up_down_counter" => ("sum", sum(false)),
        "gauge" => ("gauge", json!({"dataPoints": number})),
        _ => ("exponentialHistogram", json!({"dataPoints": histogram, "aggregationTemporality": 2})),
    };
    Ok(json!({"name": name, "unit": unit, kind: data}))
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}
