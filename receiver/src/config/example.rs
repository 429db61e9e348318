//! The example configuration, generated from the JSON schema.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Maximum line length of comments.
const WIDTH: usize = 100;

const INTRODUCTION: &str = "\
# Every key of the configuration with its default. A key that is commented out has no fixed default; its value is an example.
# docs/configuration.md has the same keys in tables. Flags take precedence over environment variables (OTEL_*), and these over
# this file. `cargo xtask docs` writes this file.
";

/// Returns a configuration that sets every key of a schema made by [`super::schema`] to its default.
#[must_use]
pub fn example(schema: &Value) -> String {
    let mut text = INTRODUCTION.to_owned();
    properties(&mut text, schema, 0);
    text
}

fn properties(text: &mut String, object: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    for (key, schema) in object["properties"].as_object().into_iter().flatten() {
        let starts_block = depth == 0 || (depth == 1 && schema.get("properties").is_some());
        if starts_block && !text.ends_with(":\n") {
            text.push('\n');
        }
        comment(text, schema["description"].as_str().unwrap_or_default(), &indent);
        if schema.get("properties").is_some() {
            // A section without values would be null, which the schema does not allow.
            let mark = if has_defaults(schema) { "" } else { "#" };
            let _ = writeln!(text, "{indent}{mark}{key}:");
            properties(text, schema, depth + 1);
        } else if let Some(default) = schema.get("default") {
            let _ = writeln!(text, "{indent}{key}: {}", yaml(default));
        } else {
            let _ = writeln!(text, "{indent}#{key}: {}", yaml(&instance(schema)));
        }
    }
}

/// Returns true if a key of a section has a default, or is a section.
fn has_defaults(section: &Value) -> bool {
    let keys = section["properties"].as_object().into_iter().flatten();
    keys.into_iter().any(|(_, schema)| schema.get("default").is_some() || schema.get("properties").is_some())
}

/// Writes the first sentence of a description. docs/configuration.md has the complete description.
fn comment(text: &mut String, description: &str, indent: &str) {
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = description.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let prefix = format!("{indent}# ");
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(&prefix)
        .subsequent_indent(&prefix)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let _ = writeln!(text, "{}", textwrap::fill(first, options));
}

/// Returns a valid value of a schema: its first example, or its first choice.
fn instance(schema: &Value) -> Value {
    let first = |key: &str| schema[key].as_array().and_then(|values| values.first()).cloned();
    let choice = || first("oneOf").map(|choice| choice["const"].clone());
    let items = || Some(Value::Array(vec![instance(schema.get("items")?)]));
    first("examples").or_else(|| first("enum")).or_else(choice).or_else(items).unwrap_or_default()
}

/// Formats a value in YAML's flow style.
pub(super) fn yaml(value: &Value) -> String {
    let plain = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=".contains(c);
        !text.is_empty() && text.chars().all(is_plain) && !text.ends_with(':')
    };
    match value {
        Value::String(text) if plain(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(yaml).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => flow(fields),
        other => other.to_string(),
    }
}

fn flow(fields: &Map<String, Value>) -> String {
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key}: {}", yaml(value))).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}
