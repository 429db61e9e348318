//! Compares the catalogue of metrics with its documentation page and with the agreed names, units and attributes.

mod committed;
#[path = "truth/errors.rs"]
mod errors;
#[path = "truth/page.rs"]
mod page;
mod promql;
#[path = "truth/table.rs"]
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use serde::Deserialize;
use undercurrent::{
    catalogue::{dashboards, markdown, semconv},
    export::view::overview::{self, Figure},
    signals::catalogue,
};

/// The agreed definition of a metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agreed {
    instrument: String,
    unit: String,
    /// Every attribute with its values, if they are listed; `None` if only the name is agreed.
    attributes: Option<BTreeMap<String, Option<Vec<String>>>>,
}

const AGREED: &str = include_str!("../fixtures/catalogue.yaml");

#[test]
fn the_reference_is_committed() {
    committed::assert_committed("docs/signals.md", &markdown());
}

#[test]
fn the_rules_of_likely_causes_are_committed() {
    committed::assert_committed("docs/causes.md", &overview::page());
}

#[test]
fn figures_are_those_of_registered_metrics() {
    for source in Figure::ALL.iter().flat_map(|figure| figure.sources()) {
        let (_, metric) =
            catalogue().find(|(_, metric)| metric.name == source.metric).unwrap_or_else(|| panic!("{source:?}"));
        for (key, values) in source.attributes {
            let attribute = metric.attributes.iter().find(|attribute| attribute.key == *key);
            let known = attribute.unwrap_or_else(|| panic!("{source:?}")).values();
            assert!(values.iter().all(|value| known.contains(value)), "{source:?}: {known:?}");
        }
    }
}

#[test]
fn the_registry_of_names_is_committed() {
    committed::assert_committed("otel-config/semconv/manifest.yaml", &semconv::manifest());
    committed::assert_committed("otel-config/semconv/undercurrent.yaml", &semconv::definitions());
}

/// `UNDERCURRENT_WEAVER_SCHEMA`, which `cargo xtask` sets, names the schema.
#[test]
#[ignore = "needs a schema of OpenTelemetry Weaver: cargo xtask test --only semconv"]
fn the_registry_follows_weavers_schema() {
    let file = env::var_os("UNDERCURRENT_WEAVER_SCHEMA").expect("UNDERCURRENT_WEAVER_SCHEMA names no file");
    let schema = serde_json::from_slice(&fs::read(file).expect("the schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let definitions = serde_saphyr::from_str(&semconv::definitions()).expect("YAML");
    let errors: Vec<String> = validator.iter_errors(&definitions).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn the_dashboards_are_committed() {
    let reading =
        fs::read_to_string(Path::new(env!("UNDERCURRENT_WORKSPACE")).join("docs/reading.md")).expect("the page");
    for (path, json) in dashboards::files(&reading) {
        committed::assert_committed(&path, &json);
    }
}

#[test]
fn every_metric_has_a_truth_and_a_comparing_test() {
    let metrics: BTreeSet<&str> = catalogue().map(|(_, metric)| metric.name).collect();
    let suite = Path::new(env!("UNDERCURRENT_WORKSPACE")).join("receiver/tests/kernel");
    page::assert_complete(&table::truths(), &metrics, &suite);
}

/// `UNDERCURRENT_TRUTH_RESULTS`, which `cargo xtask` sets, names a file of measured errors.
#[test]
fn the_truths_are_committed() {
    let workspace = Path::new(env!("UNDERCURRENT_WORKSPACE"));
    let mut columns = page::committed(workspace);
    if let Some(results) = env::var_os("UNDERCURRENT_TRUTH_RESULTS") {
        page::update(&mut columns, &fs::read_to_string(results).expect("the results of tests"));
    }
    committed::assert_committed(page::PAGE, &page::render(&table::truths(), &columns));
}

#[test]
fn metrics_are_exported_as_agreed() {
    let agreed: BTreeMap<String, Agreed> = serde_saphyr::from_str(AGREED).expect("the extract");
    for (_, metric) in catalogue() {
        let expected = agreed.get(metric.name).unwrap_or_else(|| panic!("{} was not agreed on", metric.name));
        assert_eq!(
            (metric.instrument.as_str(), metric.unit),
            (&*expected.instrument, &*expected.unit),
            "{}",
            metric.name
        );
        let Some(attributes) = &expected.attributes else { continue };
        for attribute in metric.attributes {
            let at = format!("{} {}", metric.name, attribute.key);
            let values = attributes.get(attribute.key).unwrap_or_else(|| panic!("{at} was not agreed on"));
            let unlisted = |value: &&str| values.as_ref().is_some_and(|values| !values.iter().any(|v| v == *value));
            assert_eq!(attribute.values().into_iter().find(unlisted), None, "{at}");
        }
    }
}
