//! docs/signals.md, generated from the catalogue.

pub mod dashboards;
mod familiar;
pub mod semconv;

use std::fmt::Write as _;

use self::familiar::{FAMILIAR, Familiar};
use crate::{
    signals::{Entry, REGISTRY, Settings, internal},
    telemetry::{AttributeKey, Descriptor, NODE_ATTRIBUTES, SCHEMA_URL, SCOPE},
    workloads,
};

const BEGINNING: &str = "\
<!-- Generated from the registry in receiver/signals/src/ by `cargo xtask docs`. -->

# Signals

Every metric that Undercurrent exports. `undercurrent signals` prints this list, `undercurrent signals --json` prints it as JSON.
[Reading the figures](reading.md) explains each metric. [Layers](internals/layers.md) defines the layers.
[Troubleshooting](troubleshooting.md#lost-events) explains the reasons of `undercurrent.lost`. To switch a signal off, set its key `enabled` to `false`
in the [configuration](configuration.md). [Resources](#resources) lists the attributes of node and workloads, and
[Familiar names](#familiar-names) the metrics of other tools.
";

/// Returns the reference of every signal and metric.
#[must_use]
pub fn markdown() -> String {
    let mut page = format!(
        "{BEGINNING}\nThe instrumentation scope is `{SCOPE}`, the schema {SCHEMA_URL}. Sums and histograms are cumulative \
         since the start of the sidecar, or since a workload was first seen.\n\n\
         The schema is that of the semantic conventions, because a schema URL must lead to a published schema file, and the names \
         `undercurrent.*` have none. [`otel-config/semconv/`](../otel-config/semconv) has these names in the format of OpenTelemetry \
         Weaver.\n"
    );
    for entry in REGISTRY {
        section(&mut page, entry.name, entry.summary, entry.metrics);
        let _ = writeln!(page, "\n{} `signals.{}.enabled: false` disables the signal.", sources(entry), entry.name);
    }
    section(&mut page, internal::NAME, internal::SUMMARY, &internal::METRICS);
    let _ = writeln!(page, "\nAlways on.");
    resources(&mut page);
    familiar(&mut page);
    page
}

/// Writes the attributes of the node's resource and of a workload's resource.
fn resources(page: &mut String) {
    page.push_str(
        "\n## Resources\n\nAn unknown attribute is absent. `resource.attributes` of the [configuration](configuration.md), \
         `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`\nreplace or extend the attributes of the node. [Workloads](workloads.md) \
         describes the sources of names.\n\n### Node\n\n",
    );
    attributes(page, &NODE_ATTRIBUTES);
    page.push_str(
        "\n### Workloads\n\nA workload has the attributes of the node, except `service.*`, `container.*`, `process.*`, `telemetry.*` \
         and `k8s.*` other than\n`k8s.node.*` and `k8s.cluster.*`.\n\n",
    );
    attributes(page, &workloads::ATTRIBUTES);
}

fn attributes(page: &mut String, attributes: &[(&str, &str)]) {
    page.push_str("| attribute | source |\n|---|---|\n");
    for (key, source) in attributes {
        let _ = writeln!(page, "| `{key}` | {source} |");
    }
}

/// Writes the metrics of other tools.
fn familiar(page: &mut String) {
    page.push_str(
        "\n## Familiar names\n\nMetrics of other tools, and the corresponding metric of Undercurrent. OBI is OpenTelemetry eBPF \
         Instrumentation.\n\n| tool | metric | here | difference |\n|---|---|---|---|\n",
    );
    for Familiar { tool, name, ours, difference } in &FAMILIAR {
        let ours = ours.map_or_else(String::new, |ours| format!("`{ours}`"));
        let _ = writeln!(page, "| {tool} | `{name}` | {ours} | {difference} |");
    }
}

/// Returns the sources of a signal's measurements, with default settings.
fn sources(entry: &Entry) -> String {
    let hooks: Vec<String> =
        (entry.hooks)(&Settings::complete()).iter().map(|hook| format!("`{}`", hook.name)).collect();
    if hooks.is_empty() { "Read from the kernel's files.".to_owned() } else { format!("Hooks: {}.", hooks.join(", ")) }
}

fn section(page: &mut String, name: &str, summary: &str, metrics: &[&Descriptor]) {
    let _ = writeln!(page, "\n## `{name}`\n\n{summary}.\n");
    page.push_str("| metric | instrument, unit | meaning | attributes |\n|---|---|---|---|\n");
    for metric in metrics {
        let attributes: Vec<String> = metric.attributes.iter().map(attribute).collect();
        let _ = writeln!(
            page,
            "| `{}` | {}, `{}` | {} | {} |",
            metric.name,
            metric.instrument.as_str(),
            metric.unit,
            metric.description,
            attributes.join("<br>")
        );
    }
}

fn attribute(attribute: &AttributeKey) -> String {
    let values = attribute.values().join(", ");
    let values = if values.is_empty() { values } else { format!(": {values}") };
    let opt_in = if attribute.opt_in { " (opt-in)" } else { "" };
    format!("`{}`{opt_in}{values}", attribute.key)
}
