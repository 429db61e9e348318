//! Error messages for YAML parse errors.

use serde_saphyr::Error as Yaml;

use crate::options::nearest;

/// The maximum length of a quoted name.
const NAME: usize = 40;

/// Returns the problem and its remedy. Quotes only numbers and booleans, because other values may be secrets.
pub fn problem(error: &Yaml, scalar: Option<String>) -> String {
    let scalar = scalar.unwrap_or_default();
    match error {
        Yaml::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key{}: {}", quoted(field), suggestion(field, expected, "the keys here are"))
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            format!("unknown value{}: {}", quoted(variant), suggestion(variant, expected, "choose from"))
        }
        Yaml::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map(quoted).unwrap_or_default();
            format!("the key{key} stands here a second time: keep one of the two")
        }
        Yaml::InvalidBooleanStrict { .. } => {
            format!("wrong type, `{scalar}` is no truth value: write `true` or `false`")
        }
        Yaml::InvalidScalar { .. } if is_octal(&scalar) => format!(
            "`{scalar}` begins with a zero, which some YAML parsers read as octal: write `{}`",
            scalar.trim_start_matches('0')
        ),
        Yaml::InvalidScalar { .. } if scalar.parse::<u128>().is_ok() => format!("`{scalar}` is too large"),
        Yaml::InvalidScalar { ty, .. } => format!("wrong type, `{scalar}` is {}", expected_scalar(ty)),
        Yaml::Unexpected { expected: "mapping start", .. } if scalar == "false" => {
            "wrong type: this must be keys with values; `{enabled: false}` switches a signal off".to_owned()
        }
        Yaml::Unexpected { expected, .. } => format!("wrong type: {}", expected_node(expected)),
        Yaml::SerdeInvalidType { unexpected, expected, .. } => {
            format!("wrong type: expected {expected}, found {unexpected}")
        }
        Yaml::SerdeInvalidValue { expected, .. } if expected.contains("nonzero") => {
            format!("`{scalar}` is too small: write a whole number from 1 up")
        }
        Yaml::SerdeInvalidValue { .. } => format!("`{scalar}` is none of the values that may stand here"),
        Yaml::NullIntoString { .. } => "the value is missing: write one, or leave the key out".to_owned(),
        Yaml::MultipleDocuments { .. } => {
            "a second YAML document starts here: a configuration is one document, remove the `---`".to_owned()
        }
        Yaml::UnknownAnchor { .. } => {
            "this alias has no anchor: define it above with `&`, or quote the value if the `*` belongs to it".to_owned()
        }
        Yaml::AliasError { error, .. } => problem(error.without_snippet(), None),
        Yaml::Message { msg, .. } => msg.clone(),
        Yaml::ExternalMessage { msg, .. } => syntax(msg),
        other => syntax(&without_location(&other.to_string())),
    }
}

/// Returns a name between backquotes, after a space; nothing for text that is no name. The file may be another one than a
/// configuration, for example one that only root may read.
fn quoted(name: &str) -> String {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    if name.len() <= NAME && is_name(name) { format!(" `{name}`") } else { String::new() }
}

/// Returns true for a number with a leading zero, such as `010`.
fn is_octal(scalar: &str) -> bool {
    scalar.len() > 1 && scalar.starts_with('0') && scalar.bytes().all(|digit| digit.is_ascii_digit())
}

fn suggestion(name: &str, known: &[&str], introduction: &str) -> String {
    nearest::nearest(name, known).map_or_else(
        || format!("{introduction} {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
        |candidate| format!("did you mean `{candidate}`?"),
    )
}

fn expected_scalar(kind: &str) -> String {
    if kind.starts_with(['u', 'i']) {
        format!("no whole number: write one{}", if kind.starts_with('u') { " from 0 up" } else { "" })
    } else {
        format!("no {kind}")
    }
}

/// Converts the parser's event name to a description of the expected YAML.
fn expected_node(event: &str) -> String {
    match event {
        "mapping start" => "this must be keys with values, written `key: value`".to_owned(),
        "sequence start" => "this must be a list, written `[one, two]`".to_owned(),
        "string scalar" | "scalar" => "this must be a single value, neither a list nor keys".to_owned(),
        other => format!("expected {other}"),
    }
}

fn syntax(message: &str) -> String {
    let advice = if message.contains("tab") { "indent with spaces, YAML takes no tabs" } else { "mend the line" };
    format!("this is no valid YAML ({message}): {advice}")
}

/// Removes the position, which already precedes the message.
fn without_location(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message).to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::NAME;
    use crate::config::File;

    fn refusals(contents: &[&str]) -> String {
        contents.iter().map(|content| refusal(content.as_bytes())).collect::<Vec<_>>().join("\n")
    }

    fn refusal(content: &[u8]) -> String {
        match File::parse(Path::new("config.yaml"), content) {
            Ok(file) => panic!("accepted: {file:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn text_that_is_no_name_is_not_quoted() {
        for secret in ["root:$6$salt", "a b", &"x".repeat(NAME + 1)] {
            let refusal = refusal(format!("'{secret}': 1\n").as_bytes());
            assert!(refusal.contains("unknown key: ") && !refusal.contains(secret), "{refusal}");
        }
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest() {
        insta::assert_snapshot!(refusals(&[
            "intervall: 10s\n",
            "interval: 10s\nsignals:\n  softnet:\n    percpu: true\n",
            "signals:\n  softnet:\n    colour: true\n",
            "packets: {energy: {enabled: true}}\n",
            "1: 2\n",
        ]), @"
        config.yaml:1:1: unknown key `intervall`: did you mean `interval`?
        config.yaml:4:5: unknown key `percpu`: did you mean `per_cpu`?
        config.yaml:3:5: unknown key `colour`: the keys here are `enabled`, `per_cpu`
        config.yaml:1:11: unknown key `energy`: the keys here are `sampling`, `filter`, `group`, `scale`
        config.yaml:1:1: unknown key `1`: the keys here are `interval`, `outputs`, `otlp`, `resource`, `health`, `listen`, `level`, `internal`, `memory_limit`, `hooks`, `sysfs_root`, `separation`, `workloads`, `packets`, `signals`
        ");
    }

    #[test]
    fn unknown_values_are_named_with_the_nearest() {
        insta::assert_snapshot!(refusals(&[
            "signals:\n  latency:\n    layers: [ip, trnsport]\n",
            "otlp: {compression: zsdt}\n",
            "outputs:\n  - otlp\n  - tabel\n",
        ]), @"
        config.yaml:3:18: unknown value `trnsport`: did you mean `transport`?
        config.yaml:1:21: unknown value `zsdt`: did you mean `zstd`?
        config.yaml:3:5: unknown output `tabel` (did you mean `table`?): the outputs are `table`, `json`, `json=FILE` and `otlp`
        ");
    }

    #[test]
    fn wrong_types_say_what_is_expected() {
        insta::assert_snapshot!(refusals(&[
            "hello world\n",
            "- interval\n",
            "signals: true\n",
            "signals: [latency]\n",
            "signals: {transmit: false}\n",
            "interval: [10s]\n",
            "outputs: table\n",
            "signals:\n  latency:\n    enabled: yes  # please\n",
            "packets: {scale: high}\n",
            "packets: {scale: -1}\n",
            "packets: {scale: 2.5}\n",
            "workloads: {limit: 010}\n",
            "otlp: {headers: {authorization: }}\n",
            "otlp: {headers: {authorization: [secret]}}\n",
        ]), @"
        config.yaml:1:1: wrong type: this must be keys with values, written `key: value`
        config.yaml:1:1: wrong type: this must be keys with values, written `key: value`
        config.yaml:1:10: wrong type: this must be keys with values, written `key: value`
        config.yaml:1:10: wrong type: this must be keys with values, written `key: value`
        config.yaml:1:21: wrong type: this must be keys with values; `{enabled: false}` switches a signal off
        config.yaml:1:11: wrong type: this must be a single value, neither a list nor keys
        config.yaml:1:10: wrong type: this must be a list, written `[one, two]`
        config.yaml:3:14: wrong type, `yes` is no truth value: write `true` or `false`
        config.yaml:1:18: wrong type, `high` is no whole number: write one from 0 up
        config.yaml:1:18: wrong type, `-1` is no whole number: write one from 0 up
        config.yaml:1:18: wrong type, `2.5` is no whole number: write one from 0 up
        config.yaml:1:20: `010` begins with a zero, which some YAML parsers read as octal: write `10`
        config.yaml:1:31: the value is missing: write one, or leave the key out
        config.yaml:1:33: wrong type: this must be a single value, neither a list nor keys
        ");
    }

    #[test]
    fn values_out_of_range_say_the_range() {
        insta::assert_snapshot!(refusals(&[
            "interval: 10\n",
            "interval: 0s\n",
            "interval: -5s\n",
            "interval: 10ms\n",
            "otlp: {timeout: 0s}\n",
            "memory_limit: 64\n",
            "memory_limit: much\n",
            "outputs: []\n",
            "outputs: [table, json]\n",
            "packets: {scale: 7}\n",
            "packets: {filter: {ports: [80, 0]}}\n",
            "packets: {filter: {ports: [65536]}}\n",
            "packets: {filter: {processes: [-1]}}\n",
            "packets: {group: {limit: 0}}\n",
            "packets: {group: {by: [interface, interface]}}\n",
            "signals: {latency: {layers: []}}\n",
            "signals: {latency: {layers: [ip, ip]}}\n",
            "signals:\n  latency:\n    extra_layers:\n      - ip_rcv\n      - ip rcv\n",
            "signals: {latency: {extra_layers: ['']}}\n",
            "signals: {latency: {extra_layers: [ip_rcv, udp_rcv, ip_rcv]}}\n",
            "signals: {latency: {extra_layers: [a, b, c, d, e, f, g, h, i]}}\n",
        ]), @"
        config.yaml:1:11: `10` has no unit: write a number and a unit, for example `10s` or `500ms`
        config.yaml:1:11: `0s` is too short: the shortest interval is 100ms
        config.yaml:1:11: `-5s` is negative: a duration is above zero, for example `10s`
        config.yaml:1:11: `10ms` is too short: the shortest interval is 100ms
        config.yaml:1:17: `0s` is zero: a duration is above zero, for example `10s`
        config.yaml:1:15: `64` has no unit: write a number and a unit, for example `64MiB`
        config.yaml:1:15: `much` is no size: write a number and a unit, for example `64MiB`
        config.yaml:1:10: the list of outputs is empty: name one, or leave the key out for the default
        config.yaml:1:10: outputs `table` and `json` both write to standard output: keep one, or give JSON a file (`json=FILE`)
        config.yaml:1:18: `7` is no scale: choose 0 to 3
        config.yaml:1:32: `0` is too small: write a whole number from 1 up
        config.yaml:1:28: `65536` is too large
        config.yaml:1:32: wrong type, `-1` is no whole number: write one from 0 up
        config.yaml:1:26: `0` groups: choose 1 to 4096
        config.yaml:1:23: one of these is named twice: leave one out
        config.yaml:1:29: the list of layers is empty: name one, or switch the signal off with `enabled: false`
        config.yaml:1:29: a layer is named twice: leave one out
        config.yaml:5:9: `ip rcv` is no name of a kernel function: write letters, digits and `_`, as in `ip_rcv_finish`
        config.yaml:1:36: `` is no name of a kernel function: write letters, digits and `_`, as in `ip_rcv_finish`
        config.yaml:1:35: `ip_rcv` is named twice: leave one out
        config.yaml:1:35: 9 functions are too many: name 8 at most
        ");
    }

    #[test]
    fn duplicates_are_reported_at_the_second_position() {
        insta::assert_snapshot!(refusals(&[
            "interval: 1s\ninterval: 2s\n",
            "signals: {latency: {}, latency: {}}\n",
            "otlp: {headers: {a: b, a: c}}\n",
            "interval: 1s\n---\ninterval: 2s\n",
        ]), @"
        config.yaml:2:1: the key `interval` stands here a second time: keep one of the two
        config.yaml:1:24: the key `latency` stands here a second time: keep one of the two
        config.yaml:1:24: the key `a` stands here a second time: keep one of the two
        config.yaml:3:1: a second YAML document starts here: a configuration is one document, remove the `---`
        ");
    }

    #[test]
    fn syntax_errors_have_positions() {
        insta::assert_snapshot!(refusals(&[
            "signals:\n\tlatency: {}\n",
            "interval: 1s\n\toutputs: [otlp]\n",
            "interval: 'abc\n",
            "signals: {latency: {enabled: true}\n",
            "interval: 10s\noutputs: [otlp]\n  otlp\n",
            "interval: *nope\n",
            "@foo: bar\n",
            "#!/bin/sh\nexec undercurrent --interval 1s\n",
            "[package]\nname = \"undercurrent\"\n",
        ]), @"
        config.yaml:2:2: this is no valid YAML (tabs disallowed within this context (block indentation)): indent with spaces, YAML takes no tabs
        config.yaml:1:11: this is no valid YAML (while scanning a plain scalar, found a tab): indent with spaces, YAML takes no tabs
        config.yaml:2:1: this is no valid YAML (invalid indentation in multiline quoted scalar): mend the line
        config.yaml:1:10: this is no valid YAML (unclosed bracket '{'): mend the line
        config.yaml:3:3: this is no valid YAML (while parsing a block mapping, did not find expected key): mend the line
        config.yaml:1:11: this alias has no anchor: define it above with `&`, or quote the value if the `*` belongs to it
        config.yaml:1:1: this is no valid YAML (unexpected character: `@'): mend the line
        config.yaml:2:1: wrong type: this must be keys with values, written `key: value`
        config.yaml:1:1: wrong type: this must be keys with values, written `key: value`
        ");
    }

    #[test]
    fn invalid_utf8_is_reported_with_its_position() {
        let refusals =
            [&b"interval: 10s\n# \xc3\xa4 \xff\n"[..], b"\x7fELF\x02\x01\x01\0", b"\xff\xfei\0n\0t\0", b"a\0b"]
                .map(refusal)
                .join("\n");
        insta::assert_snapshot!(refusals, @"
        config.yaml:2:5: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8
        config.yaml:1:1: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8
        config.yaml:1:1: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8
        config.yaml:1:2: is no UTF-8 text: this is no YAML file, check the path or save it as UTF-8
        ");
    }

    #[test]
    fn a_file_with_comments_only_is_the_default() {
        for content in ["", "\n", "# comment\n", "---\n", "---\n...\n", "{}\n", "\u{feff}# mark\n", "signals:\notlp:\n"]
        {
            let file = File::parse(Path::new("config.yaml"), content.as_bytes()).expect(content);
            assert_eq!(file, File::default(), "{content:?}");
        }
    }

    #[test]
    fn deep_nesting_is_rejected() {
        for opening in ["[", "{a: "] {
            let nested = format!("resource: {{attributes: {}", opening.repeat(100_000));
            assert!(refusal(nested.as_bytes()).starts_with("config.yaml:1:"));
        }
    }
}
