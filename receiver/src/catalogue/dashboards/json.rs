//! The format of Grafana's dashboards, in the classic schema that Grafana 10 and later load.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    COLUMNS, Dashboard,
    Kind::{self, Band, Bars, Heatmap, Lines, Reading, Stack, Table, Traces},
    Panel, promql,
};

/// The version of the classic schema.
const SCHEMA: u32 = 39;
/// Height of a panel in rows of the grid.
const HEIGHT: u32 = 9;
/// The tag of all dashboards.
const TAG: &str = "undercurrent";
/// The variable with the data source, and how panels and variables refer to it.
const DATA_SOURCE: &str = "datasource";
/// The same for traces.
const TRACES: &str = "traces";
/// Traces in a panel.
const LIMIT: u32 = 20;
/// The label that identifies a workload in a link to its dashboard.
const IDENTITY: &str = "instance";
/// A link from a series of a workload to its dashboard.
const WORKLOAD: &str = "/d/undercurrent-workload?${datasource:queryparam}&${host:queryparam}&var-workload=${__field.labels.instance}&${__url_time_range}";

/// A variable with values from a query.
struct Variable {
    name: &'static str,
    label: &'static str,
    query: &'static str,
    /// Selects text and value in the result of the query.
    regex: &'static str,
}

/// The variables, each after those that it uses.
const VARIABLES: [Variable; 3] = [
    Variable { name: "host", label: "Host", query: "label_values(undercurrent_sampling_ratio, host_name)", regex: "" },
    Variable {
        name: "namespace",
        label: "Namespace",
        query: "label_values(undercurrent_cpu_time_seconds_total{$hosts}, k8s_namespace_name)",
        regex: "",
    },
    Variable {
        name: "workload",
        label: "Workload",
        query: r#"query_result(count by (workload, instance) (named(undercurrent_cpu_time_seconds_total{job!="undercurrent", k8s_namespace_name=~"$namespace", $hosts})))"#,
        regex: r#"/workload="(?<text>[^"]+)|instance="(?<value>[^"]+)/g"#,
    },
];

/// Returns a dashboard's JSON.
pub fn dashboard(dashboard: &Dashboard, reading: &str) -> String {
    let panels = panels(dashboard, reading);
    let text = Value::from(panels.clone()).to_string();
    let is_used = |variable: &&Variable| text.contains(&format!("${}", variable.name));
    let of_traces = text.contains(&format!("${{{TRACES}}}")).then(|| data_source_variable(TRACES, "Traces", "jaeger"));
    let variables: Vec<_> = [data_source_variable(DATA_SOURCE, "Data source", "prometheus")]
        .into_iter()
        .chain(VARIABLES.iter().filter(is_used).map(variable))
        .chain(of_traces)
        .collect();
    let json = json!({
        "annotations": {"list": []},
        "description": dashboard.description,
        "editable": false,
        "graphTooltip": 1,
        "links": [link("dashboards", "Undercurrent", "", &[TAG])],
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": SCHEMA,
        "tags": [TAG],
        "templating": {"list": variables},
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "title": dashboard.title,
        "uid": format!("undercurrent-{}", dashboard.name),
        "version": 1,
    });
    format!("{:#}\n", sorted(json))
}

/// Returns a link to the dashboards with a tag, or to a page.
fn link(kind: &str, title: &str, url: &str, tags: &[&str]) -> Value {
    json!({
        "asDropdown": true, "icon": "external link", "includeVars": true, "keepTime": true, "tags": tags,
        "targetBlank": url.starts_with("https:"), "title": title, "tooltip": "", "type": kind, "url": url,
    })
}

/// Sorts the keys of all objects. Features of other packages decide on the order of serde_json.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(elements) => elements.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// Returns the rows and panels with their places in the grid.
fn panels(dashboard: &Dashboard, reading: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut y = 0;
    for row in dashboard.rows {
        let id = all.len() + 1;
        let place = json!({"h": 1, "w": COLUMNS, "x": 0, "y": y});
        all.push(
            json!({"collapsed": false, "gridPos": place, "id": id, "panels": [], "title": row.title, "type": "row"}),
        );
        y += 1;
        let mut x = 0;
        for one in row.panels {
            if x + one.width > COLUMNS {
                (x, y) = (0, y + HEIGHT);
            }
            let mut json = panel(one, reading);
            json["id"] = json!(all.len() + 1);
            json["gridPos"] = json!({"h": HEIGHT, "w": one.width, "x": x, "y": y});
            all.push(json);
            x += one.width;
        }
        y += HEIGHT;
    }
    all
}

fn panel(panel: &Panel, reading: &str) -> Value {
    let page = format!("{}/blob/main/docs/{}", env!("CARGO_PKG_REPOSITORY"), panel.see);
    let mut json = json!({
        "description": panel.description,
        "links": [link("link", "Documentation", &page, &[])],
        "title": panel.title,
        "type": name(panel.kind),
        "options": options(panel, reading),
    });
    if panel.kind != Reading {
        let is_of_traces = panel.kind == Traces;
        json["datasource"] = if is_of_traces { trace_source() } else { data_source() };
        json["fieldConfig"] = fields(panel);
        json["targets"] = if is_of_traces { searches(panel) } else { targets(panel) }.into();
    }
    if panel.kind == Table {
        let hidden = json!({"Time": true, "Value": true});
        json["transformations"] = json!([{"id": "organize", "options": {"excludeByName": hidden}}]);
    }
    json
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Lines | Stack | Band => "timeseries",
        Heatmap => "heatmap",
        Bars => "bargauge",
        Table | Traces => "table",
        Reading => "text",
    }
}

fn options(panel: &Panel, reading: &str) -> Value {
    let legend = json!({"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true});
    match panel.kind {
        Lines | Stack | Band => json!({
            "legend": legend,
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        Heatmap => json!({
            "calculate": false,
            "cellGap": 0,
            "color": {
                "exponent": 0.5, "fill": "dark-orange", "mode": "scheme", "reverse": false, "scheme": "Oranges", "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "legend": {"show": true},
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": true, "yHistogram": true},
            "yAxis": {"axisPlacement": "left", "unit": panel.unit},
        }),
        Bars => json!({
            "displayMode": "gradient",
            "legend": legend,
            "maxVizHeight": 300,
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            "showUnfilled": true,
            "sizing": "auto",
            "valueMode": "color",
        }),
        Table | Traces => json!({"frameIndex": 0, "showHeader": true}),
        Reading => json!({"content": in_short(reading), "mode": "markdown"}),
    }
}

/// Returns the table at the beginning of docs/reading.md.
fn in_short(reading: &str) -> &str {
    reading.split_once("In short:\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).map_or("", |(table, _)| table)
}

fn fields(panel: &Panel) -> Value {
    let style = match panel.kind {
        Lines | Band => json!({"fillOpacity": 0, "lineWidth": 1, "showPoints": "never"}),
        Stack => json!({"fillOpacity": 30, "lineWidth": 1, "showPoints": "never", "stacking": {"mode": "normal"}}),
        Table | Traces => json!({"align": "auto", "inspect": false}),
        Heatmap | Bars | Reading => json!({}),
    };
    let is_of_workload = panel.queries.iter().any(|(_, query)| query.contains(&format!("workload, {IDENTITY}")));
    let links = if is_of_workload { json!([{"title": "Workload", "url": WORKLOAD}]) } else { json!([]) };
    let overrides = if panel.kind == Band {
        let fill = |id: &str, value: Value| json!({"id": id, "value": value});
        let properties = [fill("custom.fillBelowTo", json!("lower")), fill("custom.fillOpacity", json!(20))];
        json!([{"matcher": {"id": "byName", "options": "upper"}, "properties": properties}])
    } else {
        json!([])
    };
    json!({"defaults": {"custom": style, "links": links, "unit": panel.unit}, "overrides": overrides})
}

fn targets(panel: &Panel) -> Vec<Value> {
    let format = match panel.kind {
        Heatmap => "heatmap",
        Table => "table",
        Lines | Stack | Band | Bars | Traces | Reading => "time_series",
    };
    let is_instant = matches!(panel.kind, Bars | Table);
    let target = |((legend, query), id): (&(&str, &str), char)| {
        json!({
            "datasource": data_source(),
            "editorMode": "code",
            "exemplar": panel.kind == Heatmap,
            "expr": promql::expand(query),
            "format": format,
            "instant": is_instant,
            "legendFormat": legend,
            "range": !is_instant,
            "refId": id.to_string(),
        })
    };
    panel.queries.iter().zip('A'..).map(target).collect()
}

/// Returns searches in Jaeger for spans of the selected workloads.
fn searches(panel: &Panel) -> Vec<Value> {
    let search = |((_, operation), id): (&(&str, &str), char)| {
        json!({
            "datasource": trace_source(),
            "limit": LIMIT,
            "operation": operation,
            "queryType": "search",
            "refId": id.to_string(),
            "service": "${workload:text}",
        })
    };
    panel.queries.iter().zip('A'..).map(search).collect()
}

fn trace_source() -> Value {
    json!({"type": "jaeger", "uid": format!("${{{TRACES}}}")})
}

fn data_source() -> Value {
    json!({"type": "prometheus", "uid": format!("${{{DATA_SOURCE}}}")})
}

fn data_source_variable(name: &str, label: &str, kind: &str) -> Value {
    json!({
        "hide": 0, "includeAll": false, "label": label, "multi": false, "name": name, "options": [],
        "query": kind, "refresh": 1, "regex": "", "type": "datasource",
    })
}

fn variable(variable: &Variable) -> Value {
    let query = promql::expand(variable.query);
    json!({
        "allValue": ".*",
        "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
        "datasource": data_source(),
        "definition": query,
        "hide": 0,
        "includeAll": true,
        "label": variable.label,
        "multi": true,
        "name": variable.name,
        "options": [],
        "query": query,
        // On every change of the time range.
        "refresh": 2,
        "regex": variable.regex,
        "sort": 1,
        "type": "query",
    })
}
