//! `undercurrent config show`: every setting with its effective value and its origin.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use serde_json::Value;

use super::{
    File, Flags, Otlp, Resource, Settings,
    example::yaml,
    file::{Headers, SysfsRoot},
    schema,
    variables::{EXPORT_INTERVAL, LOGS_EXPORTER, METRICS_EXPORTER, TRACES_EXPORTER},
};
use crate::{
    environment::{Environment, Ignored, value},
    export::otlp,
    options::{AbsolutePath, Hooks},
    telemetry::{RESOURCE_ATTRIBUTES, SERVICE_NAME, listed},
};

/// The column of the origins.
const ORIGIN: usize = 50;
/// The text in the place of a secret.
const SECRET: &str = "...";

/// The inputs of the settings, with the settings that result from them.
pub struct Shown<'a> {
    /// The command line.
    pub flags: &'a Flags,
    /// The environment.
    pub environment: Environment<'a>,
    /// The configuration file with its content.
    pub file: Option<(&'a Path, &'a [u8])>,
    /// The effective settings.
    pub settings: &'a Settings,
    /// The environment variables with invalid values.
    pub ignored: &'a [Ignored],
}

impl Shown<'_> {
    /// Returns a configuration file with every setting. A comment names the origin of each value. Values of headers are
    /// left out, because they may be secrets.
    #[must_use]
    pub fn text(&self) -> String {
        let effective = serde_json::to_value(self.effective()).unwrap_or_default();
        let mut text = String::new();
        self.object(&mut text, &schema(), &effective, &self.given(), "");
        text
    }

    /// Returns the keys of the configuration file.
    fn given(&self) -> Value {
        let text = self.file.map(|(_, content)| String::from_utf8_lossy(content)).unwrap_or_default();
        serde_saphyr::from_str::<Option<Value>>(&text).ok().flatten().unwrap_or_default()
    }

    /// Writes the values of an object, and its nested objects.
    fn object(&self, text: &mut String, schema: &Value, effective: &Value, given: &Value, path: &str) {
        let indent = "  ".repeat(path.matches('.').count() + usize::from(!path.is_empty()));
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if schema.get("properties").is_some() {
                let _ = writeln!(text, "{indent}{key}:");
                self.object(text, schema, &effective[key], &given[key], &below);
                continue;
            }
            let value = effective.get(key).map(|value| format!("{indent}{key}: {}", yaml(value)));
            // A key without a value has a default that depends on others.
            let value = value.unwrap_or_else(|| format!("{indent}#{key}:"));
            let _ = writeln!(text, "{value:<ORIGIN$} # {}", self.origin(&below, !given[key].is_null()));
        }
    }

    /// Returns the origin of a value: the highest in precedence of flag, variable and file.
    fn origin(&self, key: &str, is_in_file: bool) -> String {
        let overriding = self.overriding(key);
        let file = self.file.filter(|_| is_in_file).map(|(path, _)| path.display().to_string());
        match (overriding, file) {
            // These keys add to the keys of the file.
            (Some(overriding), Some(file)) if ADDED.contains(&key) => format!("{file} and {overriding}"),
            (Some(overriding), _) => overriding.to_owned(),
            (None, Some(file)) => file,
            (None, None) => "default".to_owned(),
        }
    }

    /// Returns the flag or variable that sets a value.
    fn overriding(&self, key: &str) -> Option<&'static str> {
        let flags = self.flags;
        let flag = |name, is_given: bool| is_given.then_some(name);
        match key {
            "interval" => flag("--interval", flags.interval.is_some()).or_else(|| self.variable(&[EXPORT_INTERVAL])),
            "outputs" => flag("--output", flags.outputs.is_some())
                .or_else(|| self.variable(&[METRICS_EXPORTER]))
                .or_else(|| self.variable(&metrics(otlp::ENDPOINT)).filter(|_| self.given()["outputs"].is_null())),
            "otlp.protocol" => self.variable(&metrics(otlp::PROTOCOL)),
            "otlp.endpoint" => self.variable(&metrics(otlp::ENDPOINT)),
            "otlp.headers" => self.variable(&metrics(otlp::HEADERS)),
            "otlp.compression" => self.variable(&metrics(otlp::COMPRESSION)),
            "otlp.timeout" => self.variable(&metrics(otlp::TIMEOUT)),
            "resource.attributes" => self.variable(&[RESOURCE_ATTRIBUTES, SERVICE_NAME]),
            "listen.address" => flag("--listen", flags.listen.is_some()),
            "hooks.avoid" => flag("--avoid", !flags.avoid.is_empty()),
            "sysfs_root" => flag("--sysfs-root", flags.sysfs_root.is_some()),
            "level" => flag("--level", flags.level.is_some()),
            "packets.sampling" => flag("--sampling", flags.sampling.is_some()),
            "otlp.logs" => self.variable(&[LOGS_EXPORTER]),
            "signals.slow_packets.enabled" => self.variable(&[TRACES_EXPORTER]),
            _ => None,
        }
    }

    /// Returns the first of these variables with a valid value.
    fn variable(&self, names: &[&'static str]) -> Option<&'static str> {
        let is_valid = |name: &&&str| !self.ignored.iter().any(|ignored| ignored.variable == **name);
        names.iter().filter(is_valid).copied().find(|name| value(self.environment, name).is_some())
    }

    /// Returns the settings as a configuration file.
    fn effective(&self) -> File {
        let file = as_file(self.settings.clone());
        let resource = Resource { attributes: self.attributes(file.resource.attributes) };
        File { otlp: self.otlp(file.otlp), resource, ..file }
    }

    fn otlp(&self, file: Otlp) -> Otlp {
        let text = |names| self.variable(&metrics(names)).and_then(|name| value(self.environment, name));
        let headers = text(otlp::HEADERS).map(|list| {
            let name = |member: &str| member.split_once('=').map(|(name, _)| name.trim().to_owned());
            list.split(',').filter_map(name).collect::<Vec<_>>()
        });
        let headers = headers.unwrap_or_else(|| file.headers.0.keys().cloned().collect());
        let compression = text(otlp::COMPRESSION).and_then(|name| serde_json::from_value(name.into()).ok());
        let timeout = text(otlp::TIMEOUT).and_then(|number| format!("{}ms", number.trim()).parse().ok());
        let protocol = text(otlp::PROTOCOL).and_then(|name| serde_json::from_value(name.trim().into()).ok());
        Otlp {
            protocol: protocol.or(file.protocol),
            endpoint: text(otlp::ENDPOINT).or(file.endpoint),
            headers: Headers(headers.into_iter().map(|name| (name, SECRET.to_owned())).collect()),
            compression: compression.or(file.compression),
            timeout: timeout.or(file.timeout),
            logs: file.logs,
        }
    }

    fn attributes(&self, file: BTreeMap<String, String>) -> BTreeMap<String, String> {
        file.into_iter().chain(listed(self.environment).0).collect()
    }
}

/// The keys whose flags and variables add to the file.
const ADDED: [&str; 2] = ["hooks.avoid", "resource.attributes"];

/// Returns the variables of a setting for metrics, in the order of precedence.
fn metrics([metrics, .., general]: otlp::Names) -> [&'static str; 2] {
    [metrics, general]
}

/// Returns settings as a configuration file.
fn as_file(settings: Settings) -> File {
    File {
        interval: Some(settings.interval),
        outputs: Some(settings.outputs).filter(|outputs| !outputs.is_none()),
        otlp: settings.otlp,
        resource: Resource { attributes: settings.resource_attributes },
        health: settings.health,
        listen: settings.listen,
        level: settings.level,
        internal: settings.internal,
        memory_limit: settings.memory_limit,
        hooks: Hooks { avoid: settings.avoid },
        sysfs_root: AbsolutePath::try_from(settings.sysfs_root.display().to_string())
            .map_or_else(|_| SysfsRoot::default(), SysfsRoot),
        separation: settings.separation,
        workloads: settings.workloads,
        packets: settings.packets,
        signals: settings.signals,
    }
}

/// Returns the keys with different values. The values may be secrets, and are left out.
#[must_use]
pub fn changed(before: &Settings, after: &Settings) -> Vec<String> {
    let value = |settings: &Settings| serde_json::to_value(as_file(settings.clone())).unwrap_or_default();
    let mut keys = Vec::new();
    compare("", &value(before), &value(after), &mut keys);
    keys
}

/// Appends the keys with different values in two objects.
fn compare(path: &str, before: &Value, after: &Value, keys: &mut Vec<String>) {
    match (before.as_object(), after.as_object()) {
        (Some(one), Some(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(&below, &before[name], &after[name], keys);
            }
        }
        _ if before == after => {}
        _ => keys.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(flags: &Flags, variables: &[(&str, &str)], file: &str) -> String {
        let path = Path::new("config.yaml");
        let environment =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
        let parsed = File::parse(path, file.as_bytes()).expect("a configuration");
        let (settings, ignored) = Settings::resolve(flags.clone(), &environment, parsed);
        let file = Some((path, file.as_bytes()));
        Shown { flags, environment: &environment, file, settings: &settings, ignored: &ignored }.text()
    }

    #[test]
    fn values_have_their_origin_and_no_secret() {
        let flags =
            Flags { interval: "5s".parse().ok(), avoid: vec![crate::options::AttachKind::Kprobe], ..Flags::default() };
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret,x-tenant=s3cret"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "often"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=net"),
        ];
        let file = "interval: 3s\nhooks: {avoid: [fentry]}\notlp: {headers: {a: s3cret}}\n\
                    resource: {attributes: {zone: a}}\nsignals: {softnet: {per_cpu: true}}\n";
        let text = shown(&flags, &variables, file);
        assert!(!text.contains("s3cret"), "{text}");
        let beginning: Vec<&str> = text.lines().take(16).collect();
        insta::assert_snapshot!(beginning.join("\n"));
        let softnet = text.lines().skip_while(|line| line.trim() != "softnet:").skip(1).take(2);
        insta::assert_snapshot!(softnet.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn the_text_is_a_configuration_with_equal_settings() {
        let file = "interval: 3s\nworkloads: {limit: 7}\npackets: {filter: {ports: [80]}}\nsignals: {energy: {model: 1W..2W}}\n";
        let text = shown(&Flags::default(), &[], file);
        let read = |text: &str| {
            let file = File::parse(Path::new("config.yaml"), text.as_bytes()).expect("a configuration");
            Settings::resolve(Flags::default(), &|_| None, file).0
        };
        assert_eq!(read(&text), read(file), "{text}");
    }

    #[test]
    fn changes_are_named_without_values() {
        let settings = |text: &str| {
            let file = File::parse("config.yaml".as_ref(), text.as_bytes()).expect("a configuration");
            Settings::resolve(Flags::default(), &|_| None, file).0
        };
        let before = settings("otlp: {headers: {a: secret, b: same}}\nsignals: {latency: {enabled: false}}\n");
        let after = settings("interval: 7s\notlp: {headers: {a: other, b: same, c: new}, timeout: 3s}\n");
        assert_eq!(changed(&before, &before), [""; 0]);
        let keys = ["interval", "otlp.headers.a", "otlp.headers.c", "otlp.timeout", "signals.latency.enabled"];
        assert_eq!(changed(&before, &after), keys);
    }
}
