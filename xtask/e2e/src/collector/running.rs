//! Collectors on loopback: one that writes received requests to a file, and one with the pipeline of otel-config.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use anyhow::Context as _;
use opentelemetry_proto::tonic::trace::v1::Span;
use tempfile::TempDir;
use xtask_common::machine;

use super::otlp::{Request, read_spans};
use crate::{
    ports::{free_address, retry},
    server::{READY, Server, folder},
};

/// The address of a collector without an OTLP server.
const UNUSED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
/// The file with the received requests.
const FILE: &str = "metrics.jsonl";
/// The file with the received spans.
const SPANS: &str = "traces.jsonl";
/// The file with the received log records.
const LOGS: &str = "logs.jsonl";

/// A collector that receives OTLP on loopback. It ends on drop.
pub struct Collector {
    server: Server,
    address: SocketAddr,
    /// The address for OTLP over HTTP.
    http: SocketAddr,
}

impl Collector {
    /// Starts a collector on a free port, and waits until it is ready. It writes one line per request. Its pipeline has no batch
    /// processor, so a line is exactly one request of the sender.
    pub fn start() -> anyhow::Result<Self> {
        retry(|| Self::start_at([free_address()?, free_address()?]))
    }

    /// Starts a collector at two addresses, for OTLP over gRPC and over HTTP; see [`Self::start`].
    pub fn start_at([address, http]: [SocketAddr; 2]) -> anyhow::Result<Self> {
        let folder = folder()?;
        let config = folder.path().join("config.yaml");
        let otlp = format!("otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}, http: {{endpoint: '{http}'}}}}}}");
        let settings = settings("otlp", &otlp, folder.path());
        fs::write(&config, settings).with_context(|| format!("cannot write {}", config.display()))?;
        Self::launch(folder, [address, http], |command| command.arg("--config").arg(&config))
    }

    /// Returns the addresses for OTLP over gRPC and over HTTP.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.address, self.http]
    }

    /// Starts a collector that runs the sidecar as its receiver, and waits until it is ready. It has no other receiver.
    pub fn embedding(sidecar: &Path, settings_of_sidecar: &str) -> anyhow::Result<Self> {
        let folder = folder()?;
        let config = folder.path().join("config.yaml");
        let receiver = format!("undercurrent: {{binary: '{}', settings: {settings_of_sidecar}}}", sidecar.display());
        let settings = settings("undercurrent", &receiver, folder.path());
        fs::write(&config, settings).with_context(|| format!("cannot write {}", config.display()))?;
        let program = super::embedding::path()?;
        Self::launch_program(&program, folder, [UNUSED; 2], |command| command.arg("--config").arg(&config))
    }

    /// Starts a collector with otel-config/collector.yaml on free ports, and waits until it is ready. It sends to a backend, `url`.
    pub fn forward_to(url: &str) -> anyhow::Result<Self> {
        let exporters = [("METRICS_EXPORTERS", "[otlp_http/backend]"), ("BACKEND_OTLP_ENDPOINT", url)];
        Self::with("otel-config/collector.yaml", &exporters)
    }

    /// Starts a collector with otel-config/agent.yaml on free ports, and waits until it is ready. It sends to a gateway, over gRPC.
    pub fn agent_of(gateway: SocketAddr) -> anyhow::Result<Self> {
        Self::with("otel-config/agent.yaml", &[("GATEWAY_ENDPOINT", &gateway.to_string())])
    }

    /// Starts a collector with a file of this repository and variables.
    fn with(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        retry(|| {
            let (address, http) = (free_address()?, free_address()?);
            let addresses = [
                ("receivers.otlp.protocols.grpc.endpoint", address),
                ("receivers.otlp.protocols.http.endpoint", http),
                ("extensions.health_check.endpoint", free_address()?),
            ];
            Self::launch(folder()?, [address, http], |command| {
                command.envs(variables.iter().copied()).arg("--config").arg(machine::workspace().join(file));
                // The collector serves its own metrics on a port of the host by default.
                command.arg("--set=service.telemetry.metrics.level=none");
                command.args(addresses.map(|(key, address)| format!("--set={key}={address}")))
            })
        })
    }

    /// Starts a collector on free ports that sends traces to a backend, `url`, and waits until it is ready.
    pub fn forward_traces_to(url: &str) -> anyhow::Result<Self> {
        retry(|| {
            let (folder, address, http) = (folder()?, free_address()?, free_address()?);
            let config = folder.path().join("config.yaml");
            let settings = settings_of_traces(address, http, url, folder.path());
            fs::write(&config, settings).with_context(|| format!("cannot write {}", config.display()))?;
            Self::launch(folder, [address, http], |command| command.arg("--config").arg(&config))
        })
    }

    /// Returns the endpoint for OTLP over HTTP, in the format of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn http(&self) -> String {
        format!("http://{}", self.http)
    }

    fn launch(
        folder: TempDir,
        [address, http]: [SocketAddr; 2],
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Self> {
        Self::launch_program(&super::path()?, folder, [address, http], arguments)
    }

    fn launch_program(
        program: &Path,
        folder: TempDir,
        [address, http]: [SocketAddr; 2],
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Self> {
        let ready = |log: &str| log.contains(READY);
        let server = Server::start("the collector", program, folder, arguments, ready)?;
        Ok(Self { server, address, http })
    }

    /// Returns the endpoint for OTLP over gRPC, in the format of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests written so far.
    pub fn requests(&self) -> anyhow::Result<Vec<Request>> {
        Request::read_all(&self.server.folder().join(FILE))
    }

    /// Returns the text of the log records written so far, as OTLP/JSON.
    pub fn logs(&self) -> anyhow::Result<String> {
        let file = self.server.folder().join(LOGS);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    /// Returns the spans written so far.
    pub fn spans(&self) -> anyhow::Result<Vec<Span>> {
        read_spans(&self.server.folder().join(SPANS))
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Ends the collector. Returns all requests that it received, and its log.
    pub fn stop_with_log(mut self) -> anyhow::Result<(Vec<Request>, String)> {
        self.server.stop()?;
        Ok((self.requests()?, self.log()))
    }

    /// Ends the collector and returns all requests that it received.
    pub fn stop(mut self) -> anyhow::Result<Vec<Request>> {
        self.server.stop()?;
        self.requests()
    }
}

/// Returns the settings of a collector that writes the requests of one receiver to files.
fn settings(name: &str, receiver: &str, folder: &Path) -> String {
    let [metrics, traces, logs] = [FILE, SPANS, LOGS].map(|file| folder.join(file));
    let (metrics, traces, logs) = (metrics.display(), traces.display(), logs.display());
    format!(
        "receivers: {{{receiver}}}\n\
         exporters:\n  \
           file/metrics: {{path: '{metrics}', flush_interval: 50ms}}\n  \
           file/traces: {{path: '{traces}', flush_interval: 50ms}}\n  \
           file/logs: {{path: '{logs}', flush_interval: 50ms}}\n\
         service:\n  \
           telemetry: {{metrics: {{level: none}}}}\n  \
           pipelines:\n    \
             metrics: {{receivers: [{name}], exporters: [file/metrics]}}\n    \
             traces: {{receivers: [{name}], exporters: [file/traces]}}\n    \
             logs: {{receivers: [{name}], exporters: [file/logs]}}\n"
    )
}

fn settings_of_traces(grpc: SocketAddr, http: SocketAddr, backend: &str, folder: &Path) -> String {
    let [metrics, traces] = [FILE, SPANS].map(|file| folder.join(file));
    let (metrics, traces) = (metrics.display(), traces.display());
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
         exporters:\n  \
           file/metrics: {{path: '{metrics}', flush_interval: 50ms}}\n  \
           file/traces: {{path: '{traces}', flush_interval: 50ms}}\n  \
           otlp_http: {{endpoint: '{backend}'}}\n\
         service:\n  \
           telemetry: {{metrics: {{level: none}}}}\n  \
           pipelines:\n    \
             metrics: {{receivers: [otlp], exporters: [file/metrics]}}\n    \
             traces: {{receivers: [otlp], exporters: [file/traces, otlp_http]}}\n"
    )
}
