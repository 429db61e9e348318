//! Opens the configured outputs.

use std::{collections::BTreeSet, num::NonZeroUsize, path::PathBuf};

use crate::{
    config::{Compression, Otlp, Protocol, Settings},
    environment::{Environment, value},
    export::{
        Bus, Output, Outputs, json,
        otlp::{self, Access, ENDPOINT_KEY, FileSettings, LogCollector, OwnTelemetry},
        prometheus::{self, Newest},
        report::Report,
        table,
        terminal::{self, Terminal},
        view::Selection,
    },
    options::{Destination, Output as Requested, Outputs as RequestedOutputs, Span},
    parts::Reach,
    reader::Foreign,
};

/// The socket of a service manager (sd_notify(3)).
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The port of the Kubernetes API in a pod.
const KUBERNETES_PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Errors of opening outputs.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file for JSON lines cannot be opened.
    #[error(transparent)]
    Json(#[from] json::OpenError),
    /// The settings of the collector are invalid.
    #[error(transparent)]
    Otlp(#[from] otlp::SettingsError),
}

/// The configured outputs, before they are opened.
pub struct Plan<'a> {
    wanted: &'a RequestedOutputs,
    /// The report that replaces the table.
    report: Option<&'a Report>,
    /// The displayed part of the table.
    selection: Selection,
    /// The settings of the collectors, if OTLP is an output.
    otlp: Option<Collectors>,
    /// True if readers fetch snapshots.
    is_read: bool,
    /// True if the worker accepts connections.
    listens: bool,
}

/// The settings of the collectors.
#[derive(Clone)]
struct Collectors {
    metrics: otlp::Settings,
    /// `None` if no spans are exported.
    spans: Option<otlp::Settings>,
    /// `None` if the sidecar's own logs stay on standard error.
    logs: Option<otlp::Settings>,
}

/// The opened outputs.
pub struct Opened {
    /// The outputs of measurements.
    pub outputs: Outputs,
    /// The exporter of the sidecar's own logs, if they are exported.
    pub own: Option<OwnTelemetry>,
    /// The collectors; `None` if OTLP is no output.
    pub collectors: Option<RunningCollectors>,
    /// The newest snapshot; `None` without an address for readers.
    pub newest: Option<Newest>,
}

/// The collectors of a running sidecar, which other settings can replace.
pub struct RunningCollectors {
    settings: Collectors,
    output: otlp::Collectors,
    logs: Option<LogCollector>,
    /// The TCP ports that the worker may connect to.
    ports: BTreeSet<u16>,
}

/// The reason why the collectors stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The settings are invalid.
    #[error(transparent)]
    Invalid(#[from] otlp::SettingsError),
    /// The worker may not connect to the port.
    #[error(
        "the endpoint {endpoint} for {items} needs a restart: the sidecar may connect to the TCP ports of its start alone ({})",
        ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    )]
    Port {
        /// The items.
        items: &'static str,
        /// The endpoint.
        endpoint: String,
        /// The ports of the start.
        ports: BTreeSet<u16>,
    },
    /// The reader may not open the socket.
    #[error(
        "the endpoint {endpoint} for {items} needs a restart: the sidecar may open the Unix socket of its start alone"
    )]
    Socket {
        /// The items.
        items: &'static str,
        /// The endpoint.
        endpoint: String,
    },
}

impl RunningCollectors {
    /// Sends to the collectors of other settings, if the sidecar may connect to all of them.
    ///
    /// # Errors
    /// The reason why the present collectors stay.
    pub fn change(&mut self, file: &Otlp, environment: Environment<'_>) -> Result<(), ChangeError> {
        let file = of_file(file);
        let lookup = |name: &'static str| value(environment, name).map(|text| (name, text));
        let renewed = |items, settings: &otlp::Settings| -> Result<otlp::Settings, ChangeError> {
            let new = settings.with_file(items, lookup, &file)?;
            self.permit(items, settings, &new)?;
            Ok(new)
        };
        let Collectors { metrics, spans, logs } = &self.settings;
        let renewed_if =
            |items, settings: &Option<otlp::Settings>| settings.as_ref().map(|old| renewed(items, old)).transpose();
        let settings = Collectors {
            metrics: renewed(otlp::Items::Metrics, metrics)?,
            spans: renewed_if(otlp::Items::Spans, spans)?,
            logs: renewed_if(otlp::Items::Logs, logs)?,
        };
        self.output.replace(settings.metrics.clone(), settings.spans.clone())?;
        self.logs.iter().zip(&settings.logs).try_for_each(|(collector, logs)| collector.replace(logs))?;
        self.settings = settings;
        Ok(())
    }

    /// Returns an error if the confined processes cannot reach an endpoint.
    fn permit(&self, items: otlp::Items, old: &otlp::Settings, new: &otlp::Settings) -> Result<(), ChangeError> {
        let (items, endpoint) = (items.as_str(), new.shown_endpoint());
        if new.port().is_some_and(|port| !self.ports.contains(&port)) {
            return Err(ChangeError::Port { items, endpoint, ports: self.ports.clone() });
        }
        if new.socket.is_some() && new.socket != old.socket {
            return Err(ChangeError::Socket { items, endpoint });
        }
        Ok(())
    }
}

impl<'a> Plan<'a> {
    /// Validates the settings and the environment variables of outputs. Opens nothing.
    ///
    /// # Errors
    /// If OTLP is enabled and its settings are invalid.
    pub fn new(settings: &'a Settings, environment: Environment<'_>) -> Result<Self, OpenError> {
        let file = of_file(&settings.otlp);
        let lookup = |name: &'static str| value(environment, name).map(|text| (name, text));
        let read = |items| otlp::Settings::from_variables(items, lookup, &file);
        let is_requested = settings.outputs.iter().any(|output| *output == Requested::Otlp);
        let only_if = |wanted: bool, items| wanted.then(|| read(items)).transpose();
        let otlp = if is_requested {
            Some(Collectors {
                metrics: read(otlp::Items::Metrics)?,
                spans: only_if(settings.signals.slow_packets.enabled, otlp::Items::Spans)?,
                logs: only_if(settings.otlp.logs, otlp::Items::Logs)?,
            })
        } else {
            None
        };
        let is_read = settings.listen.address.is_some();
        let listens = is_read || settings.health.listen.is_some();
        Ok(Self { wanted: &settings.outputs, report: None, selection: Selection::default(), otlp, is_read, listens })
    }

    /// Fills a report instead of drawing the table. The process then answers no readers, because a running sidecar may use the address.
    #[must_use]
    pub fn reporting(self, report: Option<&'a Report>) -> Self {
        let answers = report.is_none();
        Self { report, is_read: self.is_read && answers, listens: self.listens && answers, ..self }
    }

    /// Displays a part of the table.
    #[must_use]
    pub fn showing(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// Returns the settings of each collector: for metrics, and for spans and logs if they are exported.
    pub fn collectors(&self) -> Vec<(otlp::Items, &otlp::Settings)> {
        let Some(Collectors { metrics, spans, logs }) = &self.otlp else { return Vec::new() };
        let spans = spans.iter().map(|settings| (otlp::Items::Spans, settings));
        let logs = logs.iter().map(|settings| (otlp::Items::Logs, settings));
        std::iter::once((otlp::Items::Metrics, metrics)).chain(spans).chain(logs).collect()
    }

    /// Returns the access that the worker needs for the outputs on this terminal and for the Kubernetes API. `environment` has the port of the API.
    #[must_use]
    pub fn reach(&self, terminal: &Terminal, environment: Environment<'_>) -> Reach {
        let collectors = self.collectors();
        let ports = collectors.iter().filter_map(|(_, settings)| settings.port());
        let api = value(environment, KUBERNETES_PORT).and_then(|port| port.parse().ok());
        let notifies = value(environment, NOTIFY_SOCKET).is_some();
        let draws = terminal.is_interactive() && self.report.is_none() && self.wanted.has_table();
        Reach { ports: ports.chain(api).collect(), notifies, draws, listens: self.listens, ..Reach::default() }
    }

    /// Returns a text for the log about each collector: the items, the endpoint and its origin. `file` is the configuration file's endpoint.
    pub fn destinations(&self, file: Option<&str>) -> Vec<String> {
        let text = |(items, settings): (otlp::Items, &otlp::Settings)| {
            let origin = settings.origin.map_or_else(|| "by default".to_owned(), |origin| format!("from {origin}"));
            let overrides = match (file, settings.origin) {
                (Some(file), Some(origin)) if origin != ENDPOINT_KEY => {
                    format!(", which overrides {ENDPOINT_KEY} `{}`", otlp::without_query(file))
                }
                _ => String::new(),
            };
            let (items, protocol) = (items.as_str(), settings.protocol.as_str());
            format!("sending {items} to {} over {protocol} ({origin}{overrides})", settings.shown_endpoint())
        };
        self.collectors().into_iter().map(text).collect()
    }

    /// Returns a warning for each collector that receives headers in plaintext over a network.
    pub fn exposed(&self) -> Vec<String> {
        let exposed = self.collectors().into_iter().filter(|(_, settings)| settings.exposes_headers());
        let text = |(items, settings): (otlp::Items, &otlp::Settings)| {
            let (items, endpoint) = (items.as_str(), settings.shown_endpoint());
            format!("headers for {items} go to {endpoint} without encryption, and may hold a token: use `https`")
        };
        exposed.map(text).collect()
    }

    /// Returns the certificates, keys and sockets that the delivery opens while it runs.
    pub fn places(&self) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> =
            self.collectors().into_iter().flat_map(|(_, settings)| settings.places()).cloned().collect();
        places.sort();
        places.dedup();
        places
    }

    /// Opens certificates, keys and sockets through the reader, because the worker may not.
    #[must_use]
    pub fn through(mut self, reader: Foreign) -> Self {
        let access = Access::through(move |path| {
            let reader = reader.clone();
            Box::pin(async move { reader.open_or_connect(path).await })
        });
        if let Some(Collectors { metrics, spans, logs }) = &mut self.otlp {
            let all = std::iter::once(metrics).chain(spans).chain(logs);
            all.for_each(|settings| settings.access = access.clone());
        }
        self
    }

    /// Opens every output. The sidecar's own traces are exported with the logs if `traces` is true. `ports` are the TCP ports that the
    /// worker may connect to. Requires a tokio runtime.
    ///
    /// # Errors
    /// If an output cannot be opened: the first error.
    pub fn open(self, terminal: &Terminal, traces: bool, ports: BTreeSet<u16>) -> Result<Opened, OpenError> {
        let cpus = std::thread::available_parallelism().ok().and_then(|cpus| NonZeroUsize::new(cpus.get()));
        let (bus, mut opened): (Bus, Vec<Output>) = Default::default();
        for wanted in self.wanted.iter() {
            match wanted {
                Requested::Table if let Some(report) = self.report => opened.push(report.open(&bus, cpus)),
                Requested::Table if terminal.is_interactive() => {
                    opened.push(terminal::open(&bus, terminal, cpus, &self.selection))
                }
                Requested::Table => opened.push(table::open(&bus, cpus, &self.selection)),
                Requested::Json(Destination::StandardOutput) => opened.push(json::open(&bus, json::Target::Stdout)?),
                Requested::Json(Destination::File(path)) => {
                    opened.push(json::open(&bus, json::Target::File(path.clone()))?)
                }
                Requested::Otlp => {}
            }
        }
        let (mut own, mut collectors) = (None, None);
        if let Some(settings) = self.otlp {
            let Collectors { metrics, spans, logs } = settings.clone();
            let traces = spans.clone().filter(|_| traces);
            let (output, running) = otlp::open(&bus, metrics, spans)?;
            let exporter = logs.map(|logs| OwnTelemetry::new(&logs, traces.as_ref(), output.statistics().clone()));
            own = exporter.transpose()?;
            let logs = own.as_ref().map(OwnTelemetry::collector);
            collectors = Some(RunningCollectors { settings, output: running, logs, ports });
            opened.push(output);
        }
        let newest = self.is_read.then(|| {
            let (output, newest) = prometheus::open(&bus, cpus);
            opened.push(output);
            newest
        });
        Ok(Opened { outputs: Outputs::new(bus, opened), own, collectors, newest })
    }
}

/// Returns the file's settings of OTLP.
fn of_file(file: &Otlp) -> FileSettings {
    FileSettings {
        protocol: file.protocol.map(|protocol| match protocol {
            Protocol::Grpc => otlp::Protocol::Grpc,
            Protocol::HttpProtobuf => otlp::Protocol::HttpProtobuf,
            Protocol::HttpJson => otlp::Protocol::HttpJson,
        }),
        endpoint: file.endpoint.clone(),
        headers: file.headers.0.clone(),
        compression: file.compression.map(|compression| match compression {
            Compression::Gzip => otlp::Compression::Gzip,
            Compression::Zstd => otlp::Compression::Zstd,
            Compression::None => otlp::Compression::None,
        }),
        timeout: file.timeout.map(Span::get),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Vec<String> {
        let text = endpoint.map_or_else(String::new, |endpoint| format!("otlp: {{endpoint: '{endpoint}'}}\n"));
        let text = format!("outputs: [otlp]\n{text}");
        let file = crate::config::File::parse("config.yaml".as_ref(), text.as_bytes()).expect("a configuration");
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let (settings, _) = Settings::resolve(crate::config::Flags::default(), &lookup, file);
        Plan::new(&settings, &lookup).expect("a plan").destinations(settings.otlp.endpoint.as_deref())
    }

    #[test]
    fn the_log_has_each_endpoint_with_its_origin() {
        let traces =
            [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e:1")];
        let lines =
            [destinations(None, &[]), destinations(Some("http://f:1"), &[]), destinations(Some("http://f:1"), &traces)];
        insta::assert_snapshot!(lines.concat().join("\n"), @"
        sending metrics to http://localhost:4317/ over grpc (by default)
        sending spans to http://localhost:4317/ over grpc (by default)
        sending logs to http://localhost:4317/ over grpc (by default)
        sending metrics to http://f:1/ over grpc (from `otlp.endpoint`)
        sending spans to http://f:1/ over grpc (from `otlp.endpoint`)
        sending logs to http://f:1/ over grpc (from `otlp.endpoint`)
        sending metrics to http://e:1/ over grpc (from OTEL_EXPORTER_OTLP_ENDPOINT, which overrides `otlp.endpoint` `http://f:1`)
        sending spans to http://t:1/ over grpc (from OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which overrides `otlp.endpoint` `http://f:1`)
        sending logs to http://e:1/ over grpc (from OTEL_EXPORTER_OTLP_ENDPOINT, which overrides `otlp.endpoint` `http://f:1`)
        ");
    }

    #[test]
    fn settings_of_the_file_apply_to_every_collector() {
        let text = "otlp: {endpoint: 'http://collector:4317', headers: {x-token: 'a=b, c'}, compression: gzip, timeout: 500us}";
        let file = crate::config::File::parse("config.yaml".as_ref(), text.as_bytes()).expect("a configuration");
        for items in [otlp::Items::Metrics, otlp::Items::Spans, otlp::Items::Logs] {
            let settings = otlp::Settings::from_variables(items, |_| None, &of_file(&file.otlp)).expect("settings");
            assert_eq!(settings.endpoint.to_string(), "http://collector:4317/");
            assert_eq!(settings.headers.get("x-token").and_then(|value| value.to_str().ok()), Some("a=b, c"));
            assert_eq!(settings.compression, otlp::Compression::Gzip);
            assert_eq!(settings.timeout, std::time::Duration::from_micros(500));
        }
    }
}
