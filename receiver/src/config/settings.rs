//! The effective settings. Flags take precedence over the environment, the environment over the file, and the file over
//! defaults.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    File, Health, Listen, Otlp,
    variables::{EXPORT_INTERVAL as INTERVAL, LOGS_EXPORTER, METRICS_EXPORTER, SDK_DISABLED, TRACES_EXPORTER},
};
use crate::{
    environment::{Environment, Ignored, value},
    export::otlp,
    options::{
        AttachKind, Destination, Internal, Interval, Level, ListenAddress, MemoryLimit, Output, Outputs, Packets,
        Sampling, Separation, Span, UnitError, Workloads,
    },
    signals::Settings as Signals,
};

/// The settings of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--interval`.
    pub interval: Option<Interval>,
    /// `--duration`.
    pub duration: Option<Span>,
    /// All `--output` flags.
    pub outputs: Option<Outputs>,
    /// `--listen`.
    pub listen: Option<ListenAddress>,
    /// `--level`.
    pub level: Option<Level>,
    /// `--sampling`.
    pub sampling: Option<Sampling>,
    /// All `--avoid` flags.
    pub avoid: Vec<AttachKind>,
    /// `--sysfs-root`.
    pub sysfs_root: Option<PathBuf>,
}

/// The effective settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time between two snapshots.
    pub interval: Interval,
    /// Run time. `None` if the sidecar runs until a signal stops it.
    pub duration: Option<Span>,
    /// The outputs of measurements.
    pub outputs: Outputs,
    /// The environment variable that disables all measurements.
    pub disabled_by: Option<&'static str>,
    /// The file's delivery settings. The exporter applies `OTEL_EXPORTER_OTLP_*` over them.
    pub otlp: Otlp,
    /// The file's resource attributes; see [`crate::telemetry::Resource::node`].
    pub resource_attributes: BTreeMap<String, String>,
    /// The local endpoint for health checks.
    pub health: Health,
    /// The pages for readers.
    pub listen: Listen,
    /// The amount of detail.
    pub level: Level,
    /// The amount of detail of the sidecar's own telemetry.
    pub internal: Internal,
    /// Upper limit of the memory of kernel maps.
    pub memory_limit: MemoryLimit,
    /// The attachment kinds that are not used.
    pub avoid: Vec<AttachKind>,
    /// The folder where sysfs is mounted.
    pub sysfs_root: PathBuf,
    /// Separation of the sidecar's processes.
    pub separation: Separation,
    /// Attribution of measurements to workloads.
    pub workloads: Workloads,
    /// The settings that all packet signals share.
    pub packets: Packets,
    /// The settings of each signal.
    pub signals: Signals,
}

impl Settings {
    /// Merges flags, environment and file. Also returns the ignored environment variables, for a warning about each.
    #[must_use]
    pub fn resolve(flags: Flags, environment: Environment<'_>, file: File) -> (Self, Vec<Ignored>) {
        let mut ignored = Vec::new();
        let from_environment = environment_interval(environment).or_warn(&mut ignored);
        let exporters = environment_exporters(environment).or_warn(&mut ignored);
        let is_disabled = environment_disabled(environment).or_warn(&mut ignored).is_some();
        let exports_spans = exported(environment, TRACES_EXPORTER).or_warn(&mut ignored).unwrap_or(true);
        let exports_logs = exported(environment, LOGS_EXPORTER).or_warn(&mut ignored);
        let disabled_by = match (is_disabled, &flags.outputs, &exporters) {
            (true, ..) => Some(SDK_DISABLED),
            (false, None, Some(Exporters::None)) => Some(METRICS_EXPORTER),
            _ => None,
        };
        let exporters = exporters.and_then(Exporters::outputs);
        let outputs = flags.outputs.or(exporters).or(file.outputs);
        let listen = Listen { address: flags.listen.or(file.listen.address), ..file.listen };
        let outputs = outputs.unwrap_or_else(|| default_outputs(environment, &file.otlp, &listen));
        let sampling = flags.sampling.unwrap_or(file.packets.sampling);
        let default = if outputs.is_table_only() { Interval::DEFAULT_TABLE } else { Interval::DEFAULT };
        let level = flags.level.unwrap_or(file.level);
        let mut signals = file.signals;
        signals.set_level(level);
        signals.slow_packets.enabled &= exports_spans;
        signals.network_functions.per_cpu.get_or_insert(outputs.is_table_only());
        let settings = Self {
            interval: flags.interval.or(from_environment).or(file.interval).unwrap_or(default),
            duration: flags.duration,
            outputs,
            disabled_by,
            otlp: Otlp { logs: exports_logs.unwrap_or(file.otlp.logs), ..file.otlp },
            resource_attributes: file.resource.attributes,
            health: file.health,
            listen,
            level,
            internal: file.internal,
            memory_limit: file.memory_limit,
            avoid: [file.hooks.avoid, flags.avoid].concat(),
            sysfs_root: flags.sysfs_root.unwrap_or_else(|| file.sysfs_root.0.as_path().to_owned()),
            separation: file.separation,
            workloads: file.workloads,
            packets: Packets { sampling, ..file.packets },
            signals,
        };
        (settings, ignored)
    }
}

fn default_outputs(environment: Environment<'_>, otlp: &Otlp, listen: &Listen) -> Outputs {
    if otlp.endpoint.is_some() || otlp::endpoint_is_set(environment) {
        return Outputs::only(Output::Otlp);
    }
    if listen.address.is_some() { Outputs::none() } else { Outputs::only(Output::Table) }
}

/// The setting of an environment variable: `None` if the variable is unset.
type FromEnvironment<T> = Result<Option<T>, Ignored>;

trait OrWarn<T> {
    /// Returns the setting, or adds the warning.
    fn or_warn(self, ignored: &mut Vec<Ignored>) -> Option<T>;
}

impl<T> OrWarn<T> for FromEnvironment<T> {
    fn or_warn(self, ignored: &mut Vec<Ignored>) -> Option<T> {
        self.unwrap_or_else(|warning| {
            ignored.push(warning);
            None
        })
    }
}

/// Returns a value if the variable disables the sidecar. Only `true` and `false` are valid, in any case.
fn environment_disabled(environment: Environment<'_>) -> FromEnvironment<()> {
    let Some(value) = value(environment, SDK_DISABLED) else { return Ok(None) };
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(Some(())),
        "false" => Ok(None),
        _ => {
            let problem = "write `true` or `false`".to_owned();
            Err(Ignored { variable: SDK_DISABLED, value, problem })
        }
    }
}

/// Returns true if the variable of the exporter of spans or logs enables them.
fn exported(environment: Environment<'_>, variable: &'static str) -> FromEnvironment<bool> {
    let Some(value) = value(environment, variable) else { return Ok(None) };
    match value.trim() {
        "none" => Ok(Some(false)),
        "otlp" => Ok(Some(true)),
        _ => {
            let problem = "write `otlp` or `none`".to_owned();
            Err(Ignored { variable, value, problem })
        }
    }
}

/// The value of `OTEL_METRICS_EXPORTER`.
enum Exporters {
    None,
    Some(Outputs),
}

impl Exporters {
    fn outputs(self) -> Option<Outputs> {
        match self {
            Self::None => None,
            Self::Some(outputs) => Some(outputs),
        }
    }
}

/// Returns the exporters of the OpenTelemetry environment variable, a list of names.
fn environment_exporters(environment: Environment<'_>) -> FromEnvironment<Exporters> {
    let Some(value) = value(environment, METRICS_EXPORTER) else { return Ok(None) };
    if value.trim() == "none" {
        return Ok(Some(Exporters::None));
    }
    let output = |name: &str| match name {
        "otlp" => Ok(Output::Otlp),
        "console" => Ok(Output::Table),
        "otlp/stdout" => Ok(Output::Json(Destination::StandardOutput)),
        "prometheus" => Err("for `prometheus` use `--listen` or `listen.address`".to_owned()),
        _ => Err(format!("`{name}` is not supported; the exporters are `otlp`, `console`, `otlp/stdout` and `none`")),
    };
    let outputs: Result<Vec<Output>, String> = value.split(',').map(str::trim).map(output).collect();
    let outputs = outputs.and_then(|outputs| Outputs::try_from(outputs).map_err(|error| error.to_string()));
    match outputs {
        Ok(outputs) => Ok(Some(Exporters::Some(outputs))),
        Err(problem) => Err(Ignored { variable: METRICS_EXPORTER, value, problem }),
    }
}

/// Returns the interval of the OpenTelemetry environment variable, a whole number of milliseconds.
fn environment_interval(environment: Environment<'_>) -> FromEnvironment<Interval> {
    let Some(value) = value(environment, INTERVAL) else { return Ok(None) };
    let ignored = |problem: String| Ignored { variable: INTERVAL, value: value.clone(), problem };
    let milliseconds: u64 = value
        .trim()
        .parse()
        .map_err(|_| ignored("write a whole number of milliseconds, for example `10000`".to_owned()))?;
    let interval = std::time::Duration::from_millis(milliseconds).try_into();
    interval.map(Some).map_err(|error: UnitError| ignored(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn settings(flags: Flags, variables: &[(&str, &str)], file: &str) -> (Settings, Vec<Ignored>) {
        let file = File::parse(Path::new("config.yaml"), file.as_bytes()).expect("a configuration");
        let environment =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
        Settings::resolve(flags, &environment, file)
    }

    fn interval(flag: Option<&str>, variable: &str, file: &str) -> String {
        let flags = Flags { interval: flag.map(|text| text.parse().expect("an interval")), ..Flags::default() };
        settings(flags, &[(INTERVAL, variable)], file).0.interval.to_string()
    }

    #[test]
    fn flags_override_environment_and_environment_overrides_the_file() {
        assert_eq!(interval(Some("1s"), "2000", "interval: 3s"), "1s");
        assert_eq!(interval(None, "2000", "interval: 3s"), "2s");
        assert_eq!(interval(None, "", "interval: 3s"), "3s");
        assert_eq!(interval(None, "", "outputs: [otlp]"), "10s");
        assert_eq!(interval(None, "", "outputs: [table, otlp]"), "10s");
        assert_eq!(interval(None, "", "outputs: [table]"), "1s");
    }

    #[test]
    fn an_invalid_interval_is_ignored_with_a_warning() {
        let warnings = ["often", "0", "-5", "1.5", "10s", "99999999999"].map(|variable| {
            let (settings, ignored) = settings(Flags::default(), &[(INTERVAL, variable)], "interval: 3s");
            assert_eq!(settings.interval.to_string(), "3s");
            ignored.iter().map(ToString::to_string).collect::<String>()
        });
        insta::assert_snapshot!(warnings.join("\n"), @"
        OTEL_METRIC_EXPORT_INTERVAL=`often` is ignored: write a whole number of milliseconds, for example `10000`
        OTEL_METRIC_EXPORT_INTERVAL=`0` is ignored: `0s` is too short: the shortest interval is 100ms
        OTEL_METRIC_EXPORT_INTERVAL=`-5` is ignored: write a whole number of milliseconds, for example `10000`
        OTEL_METRIC_EXPORT_INTERVAL=`1.5` is ignored: write a whole number of milliseconds, for example `10000`
        OTEL_METRIC_EXPORT_INTERVAL=`10s` is ignored: write a whole number of milliseconds, for example `10000`
        OTEL_METRIC_EXPORT_INTERVAL=`99999999999` is ignored: `3years 2months 18h 39m 27s 999ms` is too long: the longest here is 1day
        ");
    }

    #[test]
    fn an_endpoint_anywhere_makes_otlp_the_default() {
        let output = |variables: &[(&str, &str)], file: &str| {
            let outputs = settings(Flags::default(), variables, file).0.outputs;
            outputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(output(&[], ""), "table");
        assert_eq!(output(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], ""), "table");
        assert_eq!(output(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")], ""), "otlp");
        assert_eq!(output(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector:4317")], ""), "otlp");
        assert_eq!(output(&[], "otlp: {endpoint: 'http://collector:4317'}"), "otlp");
        let listen = "listen: {address: '127.0.0.1:9464'}";
        assert_eq!(output(&[], listen), "", "readers fetch the snapshots");
        assert_eq!(output(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")], listen), "otlp");
        assert_eq!(output(&[], &format!("{listen}\noutputs: [table]")), "table");
        assert_eq!(output(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")], "outputs: [json]"), "json");
    }

    #[test]
    fn exporters_of_the_environment_select_the_outputs() {
        let selected = |exporters: &str| {
            let (settings, ignored) =
                settings(Flags::default(), &[(METRICS_EXPORTER, exporters)], "outputs: [json=file]");
            let outputs: Vec<String> = settings.outputs.iter().map(ToString::to_string).collect();
            let ignored: String = ignored.iter().map(ToString::to_string).collect();
            format!("{exporters} -> {} {:?} {ignored}", outputs.join(" "), settings.disabled_by).trim().to_owned()
        };
        let cases =
            ["", "otlp", "console", "otlp/stdout, otlp", "none", "prometheus", "console,otlp/stdout", "otlp,none"];
        insta::assert_snapshot!(cases.map(selected).join("\n"));
        let flags = Flags { outputs: Some(Outputs::only(Output::Table)), ..Flags::default() };
        let (settings, _) = settings(flags, &[(METRICS_EXPORTER, "none")], "");
        assert_eq!((settings.disabled_by, settings.outputs), (None, Outputs::only(Output::Table)));
    }

    #[test]
    fn only_true_disables_the_sidecar() {
        let disabled = |value: &str| {
            let (settings, ignored) = settings(Flags::default(), &[(SDK_DISABLED, value)], "");
            (settings.disabled_by, ignored.len())
        };
        assert_eq!(["true", "TRUE"].map(disabled), [(Some(SDK_DISABLED), 0); 2]);
        assert_eq!(["", "false"].map(disabled), [(None, 0); 2]);
        assert_eq!(["1", "yes"].map(disabled), [(None, 1); 2]);
    }

    #[test]
    fn the_exporter_of_traces_can_only_disable_spans() {
        let spans = |exporter: &str, file: &str| {
            let (settings, ignored) = settings(Flags::default(), &[(TRACES_EXPORTER, exporter)], file);
            (settings.signals.slow_packets.enabled, ignored.len())
        };
        assert_eq!(["", "otlp"].map(|exporter| spans(exporter, "")), [(true, 0); 2]);
        assert_eq!(spans("none", ""), (false, 0));
        assert_eq!(["console", "zipkin", "otlp,none"].map(|exporter| spans(exporter, "")), [(true, 1); 3]);
        assert_eq!(spans("otlp", "signals: {slow_packets: {enabled: false}}"), (false, 0));
    }

    #[test]
    fn outputs_of_the_flags_replace_those_of_the_file() {
        let flags = Flags { outputs: Some(Outputs::only(Output::Table)), ..Flags::default() };
        let (settings, _) = settings(flags, &[], "outputs: [json=a, otlp]");
        assert_eq!(settings.outputs, Outputs::only(Output::Table));
    }
}
