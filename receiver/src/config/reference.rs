//! docs/configuration.md, generated from the JSON schema.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::variables;

const INTRODUCTION: &str = "\
<!-- Generated from the JSON schema of receiver/src/config/ by `cargo xtask docs`. -->

# Configuration

`undercurrent run --config FILE` reads one YAML file. `undercurrent config example` prints [a file with every key and its
default](../receiver/config.example.yaml), `undercurrent config schema` prints the [JSON schema](../receiver/config.schema.json)
for editors. A key that does not exist, a value of the wrong type and a key given twice are errors that name the line.

`undercurrent config check FILE` checks a file without privileges, for example in a CI job. `undercurrent config show --config FILE` prints every
effective setting with its origin: a flag, a variable, the file or the default. It hides the values of headers.

## Switch a signal off

Every signal has the key `signals.NAME.enabled`. This file switches two signals off:

```yaml
signals:
  transmit: {enabled: false}
  network_cpu: {enabled: false}
```

`undercurrent doctor --config FILE` lists them as `off`. The kernel runs no program that only disabled signals need. [Signals](signals.md)
lists the names, [Overhead](overhead.md#a-web-server) the cost.

## Change a running sidecar

At SIGHUP the sidecar reads the file again (`systemctl reload`). These keys apply at once:

| keys | applies | needs a restart |
|---|---|---|
| `interval` | from the next snapshot on | |
| `otlp.endpoint`, `otlp.protocol`, `otlp.headers`, `otlp.compression`, `otlp.timeout` | from the next request on, without a loss of counts; the sidecar's own logs follow | an endpoint with a TCP port or a Unix socket that no collector had at the start: the processes may open no other; `outputs`; the sidecar's own traces at debug level |
| `packets.filter` | within a second | other criteria than at the start, network namespaces by path, and more values than the map has room for (at least 64) |
| `signals.slow_packets.addresses` | for the next span | |

All other keys need a restart, and the log names those that changed. An invalid file changes nothing. A part that cannot change keeps its old
setting, and the log has the reason. Variables and flags take precedence as at the start.

## Keys
";

/// Returns the reference of every key of a schema made by [`super::schema`].
#[must_use]
pub fn markdown(schema: &Value) -> String {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, "", schema);
    variables::append(&mut page);
    page
}

/// Writes the section of an object: a table of its values, then a section for each nested object.
fn section(page: &mut String, path: &str, object: &Value) {
    if path.is_empty() {
        let _ = writeln!(page, "\n{}", sentence(object));
    } else {
        let _ = writeln!(page, "\n## `{path}`\n\n{}", sentence(object));
    }
    let (sections, values): (Vec<_>, Vec<_>) =
        properties(object).partition(|(_, schema)| schema.contains_key("properties"));
    if !values.is_empty() {
        page.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, schema) in values {
        let default = schema.get("default").map_or_else(String::new, |default| format!("`{}`", plain(default)));
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | {} |",
            below(key),
            kind(schema),
            sentence(&schema["description"])
        );
    }
    for (key, schema) in sections {
        section(page, &below(key), &Value::Object(schema.clone()));
    }
}

fn properties(object: &Value) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    let properties = object["properties"].as_object().into_iter().flatten();
    properties.filter_map(|(key, schema)| schema.as_object().map(|schema| (key, schema)))
}

/// Returns a short description of the valid values.
fn kind(schema: &Map<String, Value>) -> String {
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(choices) = choices(schema) {
        return choices;
    }
    match (text("title"), text("type")) {
        ("", "array") => format!("list of {}", schema.get("items").map_or_else(String::new, kinds)),
        ("", "object") => "names with texts".to_owned(),
        ("", "string") => "text".to_owned(),
        ("", "boolean") => "`true` or `false`".to_owned(),
        ("", "integer") => {
            let minimum = schema.get("minimum").map_or_else(String::new, Value::to_string);
            schema
                .get("maximum")
                .map_or_else(|| format!("{minimum} or more"), |maximum| format!("{minimum} to {maximum}"))
        }
        ("", other) => other.to_owned(),
        (title, _) => title.to_owned(),
    }
}

/// Returns a short description of the items of a list.
fn kinds(items: &Value) -> String {
    match (items["anyOf"].as_array(), items.as_object()) {
        (Some(alternatives), _) => alternatives.iter().map(kinds).collect::<Vec<_>>().join(" or "),
        (None, Some(item)) if item.contains_key("title") => format!("{}s", kind(item)),
        (None, Some(item)) if items["type"] == "integer" && !item.contains_key("maximum") => "numbers".to_owned(),
        (None, item) => item.map_or_else(String::new, kind),
    }
}

/// Returns the values of an enumeration, with their descriptions if all variants have one.
fn choices(schema: &Map<String, Value>) -> Option<String> {
    let of = |key: &str| schema.get(key).and_then(Value::as_array);
    let names: Vec<&Value> = match (of("enum"), of("oneOf")) {
        (Some(names), _) => names.iter().collect(),
        (None, Some(variants)) => variants.iter().map(|variant| &variant["const"]).collect(),
        (None, None) => return None,
    };
    Some(names.into_iter().map(|name| format!("`{}`", plain(name))).collect::<Vec<_>>().join(", "))
}

/// Formats a value as YAML.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// Returns a description on one line.
fn sentence(description: &Value) -> String {
    let text = description.as_str().or_else(|| description["description"].as_str()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
