//! The JSON schema of the configuration file, for editors and for the generated reference.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::File;

/// A configuration file that sets every key to its default.
pub const EXAMPLE: &str = include_str!("../../config.example.yaml");

/// Returns the JSON schema (2020-12) of the configuration file, without references.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<File>().to_value()
}

/// Returns the names of all configurable signals.
#[must_use]
pub fn signal_names() -> Vec<String> {
    let schema = schema();
    let signals = schema["properties"]["signals"]["properties"].as_object();
    signals.into_iter().flat_map(|signals| signals.keys().cloned()).collect()
}
