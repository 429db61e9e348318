//! Compares the documentation of the configuration with the types that parse it.

mod committed;

use std::{collections::BTreeSet, path::Path};

use committed::assert_committed;
use serde_json::Value;
use undercurrent::config::{EXAMPLE, File, example, markdown, schema, signal_names};

/// Returns the example with its commented settings enabled: a setting follows its `#` without a space.
fn full_example() -> String {
    let uncommented = EXAMPLE.lines().map(|line| match line.trim_start().strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            format!("{}{setting}\n", &line[..line.len() - line.trim_start().len()])
        }
        _ => format!("{line}\n"),
    });
    uncommented.collect()
}

fn load(text: &str) -> File {
    File::parse(Path::new("config.example.yaml"), text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// Returns the dotted path of every key with a value.
fn keys(path: &str, value: &Value, below: impl Fn(&Value) -> Option<&Value> + Copy) -> BTreeSet<String> {
    match below(value).and_then(Value::as_object).filter(|object| !object.is_empty()) {
        None => BTreeSet::from([path.to_owned()]),
        Some(object) => object.iter().flat_map(|(key, value)| keys(&format!("{path}.{key}"), value, below)).collect(),
    }
}

#[test]
fn the_schema_is_committed() {
    let text = serde_json::to_string_pretty(&schema()).expect("JSON") + "\n";
    assert_committed("receiver/config.schema.json", &text);
}

#[test]
fn the_example_is_committed() {
    assert_committed("receiver/config.example.yaml", &example(&schema()));
}

#[test]
fn the_reference_is_committed() {
    assert_committed("docs/configuration.md", &markdown(&schema()));
}

#[test]
fn the_example_equals_the_defaults() {
    assert_eq!(load(EXAMPLE), File::default());
}

#[test]
fn the_example_has_every_key() {
    let said = keys("", &yaml(&full_example()), |value| Some(value));
    let known = keys("", &schema(), |schema| schema.get("properties"));
    assert_eq!(said, known);
    assert_ne!(load(&full_example()), File::default());
}

#[test]
fn schema_and_parser_agree() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    let full = full_example();
    let accepted = [
        EXAMPLE,
        &full,
        "{}",
        "outputs: [json=/var/log/undercurrent.jsonl, otlp]",
        "resource: {attributes: {a: b}}",
        "health: {listen: '127.0.0.1:13134'}",
        "health: {listen: 'unix:///run/health.sock'}",
        "packets: {scale: 0}\nsignals: {latency: {layers: [socket_read]}}",
        "signals: {latency: {head_of_line_blocking: include}}",
        "signals: {latency: {extra_layers: [ip_rcv_finish, __netif_receive_skb_core]}}",
        "workloads: {sockets: [], kubernetes: false}",
        "workloads: {sockets: [/run/docker.sock]}",
    ];
    let refused = [
        "intervall: 1s",
        "outputs: []",
        "outputs: [otlp, otlp]",
        "outputs: [tabel]",
        "outputs: table",
        "outputs: [json=]",
        "otlp: {compression: brotli}",
        "health: {listen: '0.0.0.0:13134'}",
        "health: {listen: /run/health.sock}",
        "otlp: {headers: [a]}",
        "memory_limit: [64MiB]",
        "packets: {scale: 4}",
        "packets: {scale: -1}",
        "signals: {latency: {layers: []}}",
        "signals: {latency: {layers: [ip, ip]}}",
        "signals: {latency: {layers: [tcp]}}",
        "signals: {latency: {head_of_line_blocking: true}}",
        "signals: {latency: {extra_layers: [ip_rcv, ip_rcv]}}",
        "signals: {latency: {extra_layers: [ip-rcv]}}",
        "signals: {latency: {extra_layers: [7up]}}",
        "signals: {latency: {extra_layers: [a, b, c, d, e, f, g, h, i]}}",
        "signals: {latency: {extra_layers: ip_rcv}}",
        "signals: {softnet: {per_cpu: maybe}}",
        "signals: {softnet: {scale: 1}}",
        "workloads: {sockets: [docker.sock]}",
        "workloads: {sockets: ['']}",
        "workloads: {sockets: /run/docker.sock}",
        "workloads: {kubernetes: never}",
    ];
    for (texts, expected) in [(&accepted[..], true), (&refused[..], false)] {
        for text in texts {
            let read = File::parse(Path::new("config.yaml"), text.as_bytes()).is_ok();
            assert_eq!((validator.is_valid(&yaml(text)), read), (expected, expected), "{text}");
        }
    }
}

#[test]
fn measured_networks_have_prefixes() {
    let parse = |text: &str| File::parse(Path::new("c.yaml"), text.as_bytes()).map_err(|error| error.to_string());
    let networks = "signals: {tcp_peers: {networks: {inside: [10.0.0.0/8]}, measured_networks: ";
    assert!(parse(&format!("{networks}[inside]}}}}")).is_ok());
    let refusal = parse(&format!("{networks}[inside, outside]}}}}")).expect_err("refused");
    assert!(refusal.contains("names `outside`, which `networks` does not have"), "{refusal}");
}

#[test]
fn every_key_is_described() {
    fn undescribed(path: &str, schema: &Value) -> Vec<String> {
        let own = schema["description"].as_str().is_none_or(str::is_empty).then(|| path.to_owned());
        let properties = schema["properties"].as_object().into_iter().flatten();
        own.into_iter()
            .chain(properties.flat_map(|(key, below)| undescribed(&format!("{path}.{key}"), below)))
            .collect()
    }
    assert_eq!(undescribed("", &schema()), Vec::<String>::new());
}

#[test]
fn every_signal_can_be_disabled() {
    assert!(!signal_names().is_empty());
    for name in signal_names() {
        let file = load(&format!("signals: {{{name}: {{enabled: false}}}}"));
        assert_ne!(file, File::default(), "{name}");
    }
}
