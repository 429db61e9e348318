//! Parsed YAML documents.

use serde_json::Value;

/// Returns the values of a key anywhere in a document.
pub fn values<'a>(document: &'a Value, key: &str) -> Vec<&'a Value> {
    let below: Vec<&Value> = match document {
        Value::Object(object) => object.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    document.get(key).into_iter().chain(below.into_iter().flat_map(|value| values(value, key))).collect()
}
