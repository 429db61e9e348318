//! Names in Prometheus: of metrics, from the table in docs/prometheus.md, which `cargo xtask e2e prometheus` compares with a real
//! Prometheus; of labels, from the registry and the promoted attributes.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use undercurrent::{
    export::prometheus::label,
    signals::catalogue,
    telemetry::{Descriptor, Instrument, NODE_ATTRIBUTES},
    workloads,
};

/// Labels that Prometheus derives from `service.*`.
const IDENTITY: [&str; 2] = ["job", "instance"];

/// Names in Prometheus.
pub struct Names {
    metrics: BTreeMap<String, &'static Descriptor>,
    /// Names of recorded series.
    recorded: Vec<String>,
    /// Labels of every series.
    promoted: Vec<String>,
    /// Labels of `target_info`.
    resource: Vec<String>,
}

/// otel-config/prometheus.yml.
#[derive(Deserialize)]
struct Settings {
    otlp: Otlp,
}

#[derive(Deserialize)]
struct Otlp {
    promote_resource_attributes: Vec<String>,
}

/// otel-config/prometheus-rules.yml.
#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Names {
    /// Reads the names.
    pub fn read() -> Self {
        let page = text("docs/prometheus.md");
        let (_, table) = page.split_once("| metric | in Prometheus |\n|---|---|\n").expect("the table of names");
        let row = |line: &str| {
            line.trim_matches(['|', ' ', '`']).split_once("` | `").map(|(a, b)| (a.to_owned(), b.to_owned()))
        };
        let stored: BTreeMap<String, String> = table.lines().map_while(row).collect();
        let metrics = catalogue().map(|(_, metric)| {
            let name = stored.get(metric.name).unwrap_or_else(|| panic!("docs/prometheus.md lacks {}", metric.name));
            (name.clone(), metric)
        });
        let attributes = NODE_ATTRIBUTES.iter().chain(&workloads::ATTRIBUTES);
        Self {
            metrics: metrics.collect(),
            recorded: rules().into_iter().filter_map(|rule| rule.record).collect(),
            promoted: promoted().iter().map(|key| label(key)).collect(),
            resource: attributes.map(|(key, _)| label(key)).collect(),
        }
    }

    /// Returns the names of metrics with their descriptors.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, &'static Descriptor)> {
        self.metrics.iter().map(|(name, metric)| (name.as_str(), *metric))
    }

    /// Returns true if Prometheus has a metric.
    pub fn has_metric(&self, name: &str) -> bool {
        name == "target_info"
            || self.metrics.contains_key(name)
            || self.recorded.iter().any(|recorded| recorded == name)
    }

    /// Returns true if a metric grows from the start of the sidecar on.
    pub fn is_cumulative(&self, name: &str) -> bool {
        let instrument = self.metrics.get(name).map(|metric| metric.instrument);
        matches!(instrument, Some(Instrument::Counter | Instrument::ExponentialHistogram | Instrument::Histogram))
    }

    /// Returns true if any series has a label.
    pub fn has_label(&self, name: &str) -> bool {
        let of_metric = |metric: &&Descriptor| metric.attributes.iter().any(|attribute| label(attribute.key) == name);
        self.is_promoted(name) || self.resource.iter().any(|key| key == name) || self.metrics.values().any(of_metric)
    }

    /// Returns the fault of a matcher: the metric lacks the label, or the label cannot have the value.
    pub fn fault_of_matcher(&self, metric: Option<&str>, name: &str, value: &str) -> Option<String> {
        if self.is_promoted(name) {
            return None;
        }
        let Some(descriptor) = metric.and_then(|metric| self.metrics.get(metric)) else {
            return (!self.has_label(name) && name != "__name__").then(|| format!("no series has the label {name}"));
        };
        let attribute = descriptor.attributes.iter().find(|attribute| label(attribute.key) == name);
        let Some(attribute) = attribute else { return Some(format!("{} has no label {name}", descriptor.name)) };
        let is_plain = value.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '|' | '-'));
        let wrong = |one: &&str| is_plain && !one.is_empty() && !attribute.admits(one);
        value.split('|').find(wrong).map(|one| format!("{} has no {name}={one}", descriptor.name))
    }

    fn is_promoted(&self, name: &str) -> bool {
        IDENTITY.contains(&name) || self.promoted.iter().any(|promoted| promoted == name)
    }
}

/// Returns the queries of docs/prometheus.md, each with its place.
pub fn of_page() -> Vec<(String, String)> {
    let page = text("docs/prometheus.md");
    let blocks = page.split("```promql\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned());
    blocks.map(|query| ("docs/prometheus.md".to_owned(), query)).collect()
}

/// Returns the queries of the rules, each with the name of its rule.
pub fn of_rules() -> Vec<(String, String)> {
    let name = |rule: &Rule| rule.record.clone().or_else(|| rule.alert.clone()).expect("a record or an alert");
    rules().into_iter().map(|rule| (name(&rule), rule.expr)).collect()
}

/// Returns the runbook of each alert, with the alert's name.
pub fn runbooks() -> Vec<(String, String)> {
    let runbook = |mut rule: Rule| Some((rule.alert?, rule.annotations.remove("runbook_url").unwrap_or_default()));
    rules().into_iter().filter_map(runbook).collect()
}

/// Returns the resource attributes that Prometheus promotes.
pub fn promoted() -> Vec<String> {
    let settings: Settings = serde_saphyr::from_str(&text("otel-config/prometheus.yml")).expect("YAML");
    settings.otlp.promote_resource_attributes
}

fn rules() -> Vec<Rule> {
    let rules: Rules = serde_saphyr::from_str(&text("otel-config/prometheus-rules.yml")).expect("YAML");
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// Returns the text of a file of the checkout.
pub fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("UNDERCURRENT_WORKSPACE")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}
