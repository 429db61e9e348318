//! The registry of names in the format of OpenTelemetry Weaver (`definition/2`), generated from the catalogue.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::json;

use crate::{
    signals::catalogue,
    telemetry::{AttributeKey, Descriptor, Instrument},
};

/// The prefix of names that this registry defines. The semantic conventions define the others.
const OWN: &str = "undercurrent.";

/// The version of the semantic conventions that define the other names.
const CONVENTIONS: &str = "1.44.0";

/// The meaning of each attribute.
const BRIEFS: [(&str, &str); 28] = [
    ("undercurrent.alternate", "The alternate that serves a hook."),
    ("undercurrent.attribution", "The method of attribution of CPU time to a workload."),
    ("undercurrent.client", "The name of the client of a connection."),
    ("undercurrent.counter.estimate", "The method by which a count was estimated."),
    ("undercurrent.cpu.use", "The use of CPU time."),
    ("undercurrent.drop.layer", "The layer that dropped packets."),
    ("undercurrent.drop.reason", "The kernel's reason for a dropped packet."),
    ("undercurrent.energy.basis", "The quantity by which energy was divided."),
    ("undercurrent.energy.domain", "The component that used the energy."),
    ("undercurrent.energy.source", "The source of a measurement of energy."),
    ("undercurrent.energy.use", "The use of energy."),
    ("undercurrent.hook", "A hook of the kernel."),
    ("undercurrent.hook.state", "The state of a hook."),
    ("undercurrent.io_uring.thread", "The kind of a thread of io_uring."),
    ("undercurrent.map", "A map of the eBPF programs."),
    ("undercurrent.network.event", "The event that caused work of the network stack."),
    ("undercurrent.network.function", "A class of the kernel's functions."),
    ("undercurrent.network.layer", "A layer of the receive path."),
    ("undercurrent.network.namespace", "The inode number of a network namespace."),
    ("undercurrent.network.stage", "A stage of the transmit path."),
    ("undercurrent.peer", "The kind of the other end of a connection."),
    ("undercurrent.reason", "The reason of a loss."),
    ("undercurrent.role", "The end of a connection: the one that opened it, or the one that accepted it."),
    ("undercurrent.server", "The name of the server of a connection."),
    ("undercurrent.signal", "A signal of the sidecar."),
    ("undercurrent.softirq", "A softirq of the network stack."),
    ("undercurrent.tcp.outcome", "What became of a TCP connection."),
    ("undercurrent.version", "The version of the sidecar."),
];

/// The attributes with integer values.
const INTEGERS: [&str; 1] = ["undercurrent.network.namespace"];

const NOTE: &str = "# Generated from the registry in receiver/signals/src/ by `cargo xtask docs`.\n";

/// Returns the manifest of the registry.
#[must_use]
pub fn manifest() -> String {
    let (repository, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    format!(
        "{NOTE}schema_url: {repository}/otel-config/semconv/{version}\n\
         description: The names of the telemetry of Undercurrent.\n\
         stability: development\n\
         dependencies:\n  \
           - schema_url: https://opentelemetry.io/schemas/{CONVENTIONS}\n    \
             registry_path: https://github.com/open-telemetry/semantic-conventions/archive/refs/tags/v{CONVENTIONS}.zip[model]\n"
    )
}

/// Returns the definitions of attributes and metrics.
#[must_use]
pub fn definitions() -> String {
    let mut metrics: Vec<&Descriptor> = catalogue().map(|(_, metric)| metric).collect();
    metrics.sort_by_key(|metric| metric.name);
    metrics.dedup_by_key(|metric| metric.name);
    let attributes = attributes(&metrics);
    let (own, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|metric| metric.name.starts_with(OWN));
    let mut text = format!("{NOTE}file_format: definition/2\n\nimports:\n  metrics:\n");
    for metric in others {
        let _ = writeln!(text, "    - {}", metric.name);
    }
    text.push_str("\nattributes:\n");
    attributes.iter().for_each(|(key, values)| attribute(&mut text, key, values));
    text.push_str("\nmetrics:\n");
    own.iter().for_each(|descriptor| metric(&mut text, descriptor));
    text
}

/// Returns the own attributes of metrics with their known values.
fn attributes(metrics: &[&Descriptor]) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for attribute in metrics.iter().flat_map(|metric| metric.attributes).filter(|one| one.key.starts_with(OWN)) {
        all.entry(attribute.key).or_default().extend(attribute.known());
    }
    for values in all.values_mut() {
        values.sort_unstable();
        values.dedup();
    }
    all
}

fn attribute(text: &mut String, key: &str, values: &[&str]) {
    let brief = BRIEFS.iter().find(|(known, _)| *known == key).map_or("", |(_, brief)| brief);
    let _ = writeln!(text, "  - key: {key}\n    brief: {}\n    stability: development", json!(brief));
    if values.is_empty() {
        let kind = if INTEGERS.contains(&key) { "int" } else { "string" };
        let _ = writeln!(text, "    type: {kind}");
        return;
    }
    text.push_str("    type:\n      members:\n");
    for value in values {
        let id: String =
            value.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
        let _ = writeln!(text, "        - {{id: {}, value: {}, stability: development}}", json!(id), json!(value));
    }
}

fn metric(text: &mut String, metric: &Descriptor) {
    let instrument = match metric.instrument {
        Instrument::Counter => "counter",
        Instrument::UpDownCounter => "updowncounter",
        Instrument::Gauge => "gauge",
        Instrument::ExponentialHistogram | Instrument::Histogram => "histogram",
    };
    let (brief, unit) = (json!(metric.description), json!(metric.unit));
    let _ = writeln!(
        text,
        "  - name: {}\n    brief: {brief}\n    instrument: {instrument}\n    unit: {unit}\n    stability: development",
        metric.name
    );
    if !metric.attributes.is_empty() {
        text.push_str("    attributes:\n");
    }
    for AttributeKey { key, opt_in, .. } in metric.attributes {
        let level = if *opt_in { "opt_in" } else { "recommended" };
        let _ = writeln!(text, "      - {{ref: {key}, requirement_level: {level}}}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn each_attribute_has_one_meaning() {
        let all: Vec<&Descriptor> = catalogue().map(|(_, metric)| metric).collect();
        let used = attributes(&all).into_keys().collect::<Vec<_>>();
        assert_eq!(BRIEFS.map(|(key, _)| key).to_vec(), used);
    }

    #[test]
    fn integers_have_no_listed_values() {
        let all: Vec<&Descriptor> = catalogue().map(|(_, metric)| metric).collect();
        let attributes = attributes(&all);
        assert!(INTEGERS.iter().all(|key| attributes[key].is_empty()));
    }

    #[test]
    fn the_definitions_are_yaml_with_unique_names() {
        let definitions: Value = serde_saphyr::from_str(&definitions()).expect("YAML");
        let names = |list: &str, key: &str| -> Vec<String> {
            let list = definitions[list].as_array().expect("a list");
            list.iter().map(|one| one[key].as_str().expect("a name").to_owned()).collect()
        };
        for (list, key) in [("metrics", "name"), ("attributes", "key")] {
            let names = names(list, key);
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{list}");
            assert!(names.iter().all(|name| name.starts_with(OWN)), "{names:?}");
        }
        let manifest: Value = serde_saphyr::from_str(&manifest()).expect("YAML");
        assert!(manifest["schema_url"].as_str().is_some_and(|url| url.ends_with(env!("CARGO_PKG_VERSION"))));
        let dependency = manifest["dependencies"][0]["schema_url"].as_str();
        assert_eq!(dependency, Some(crate::telemetry::SCHEMA_URL));
    }
}
