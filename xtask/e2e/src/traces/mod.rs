//! Servers and clients of the official OpenTelemetry SDK, in two network namespaces. The server reads one request in a hundred late; the
//! spans of these packets arrive in Jaeger through a collector, inside the traces of the SDK.

mod checks;
mod running;
mod wire;

use std::{path::Path, process::Command, time::Duration};

use anyhow::Context as _;
use tempfile::TempDir;
use xtask_common::{
    machine,
    process::{self, patience},
    traffic::Traffic,
};
use xtask_e2e::{
    collector::running::Collector,
    jaeger::running::{Jaeger, Span, Trace},
};

use self::{
    checks::{Times, exported, has_exemplar, has_waited, print, receive, request, span_of},
    running::{Running, python},
    wire::Wire,
};
use crate::require_root;

/// The delay of late reads in `sdk.py`.
const LATE: Duration = Duration::from_millis(150);
const REQUESTS: usize = 300;
/// Late reads among the requests.
const SLOW: usize = 3;
/// The port of the servers.
const PORT: u16 = 8078;
const PATIENCE: Duration = Duration::from_secs(20);

/// The programs whose requests carry a `traceparent`.
const REQUESTING: [&str; 2] = ["http", "grpc"];
const DATAGRAMS: &str = "udp";
/// The service of packets that belong to no workload.
const NODE: &str = "undercurrent";

/// Runs the scenario over both IP versions.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    without_collector(sidecar)?;
    let python = python()?;
    for (version, addresses) in
        [("ipv4", ["10.78.0.1/24", "10.78.0.2/24"]), ("ipv6", ["fd00:78::1/64", "fd00:78::2/64"])]
    {
        let site = Site::start(sidecar, &python, version, addresses)?;
        for program in REQUESTING {
            site.requests(program).with_context(|| site.failed(program))?;
        }
        site.datagrams().with_context(|| site.failed(DATAGRAMS))?;
    }
    Ok(())
}

/// Checks that spans arrive in Jaeger without a collector.
fn without_collector(sidecar: &Path) -> anyhow::Result<()> {
    let jaeger = Jaeger::start()?;
    let traffic = Traffic::start()?;
    let config = tempfile::NamedTempFile::new()?;
    std::fs::write(config.path(), "packets: {sampling: all}\nsignals: {slow_packets: {threshold: 1us}}\n")?;
    let mut running = Command::new(sidecar);
    running.args(["run", "--output", "otlp", "--interval", "1s", "--config"]).arg(config.path());
    running.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf").env("OTEL_EXPORTER_OTLP_ENDPOINT", jaeger.endpoint());
    let _sidecar = Running::start(&mut running, " signals: ")?;
    process::wait_for("spans in Jaeger", patience(PATIENCE), || {
        Ok((!jaeger.traces(NODE, Duration::ZERO)?.is_empty()).then_some(()))
    })?;
    traffic.stop()?;
    println!("e2e traces: spans are in Jaeger without a collector");
    Ok(())
}

/// The namespaces, the sidecar and the stores of one IP version.
struct Site<'a> {
    python: &'a Path,
    version: &'static str,
    address: String,
    // The sidecar ends before its collector, and that before Jaeger.
    _sidecar: Running,
    wire: Wire,
    collector: Collector,
    jaeger: Jaeger,
    _folder: TempDir,
}

impl<'a> Site<'a> {
    fn start(sidecar: &Path, python: &'a Path, version: &'static str, addresses: [&str; 2]) -> anyhow::Result<Self> {
        let jaeger = Jaeger::start()?;
        let collector = Collector::forward_traces_to(&jaeger.endpoint())?;
        let wire = Wire::new(addresses)?;
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("config.yaml");
        let settings = "signals: {slow_packets: {threshold: 100ms, uniform_share: none, payload: http2, budget: 10}}\n";
        std::fs::write(&config, settings)?;
        let mut running = Command::new(sidecar);
        running.args(["run", "--output", "otlp", "--interval", "1s", "--sampling", "all", "--config"]).arg(&config);
        running.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
        let _sidecar = Running::start(&mut running, " signals: ")?;
        let address = addresses[1].split('/').next().unwrap_or_default().to_owned();
        Ok(Self { python, version, address, _sidecar, wire, collector, jaeger, _folder: folder })
    }

    fn failed(&self, program: &str) -> String {
        format!("{program} over {}; the collector logged:\n{}", self.version, self.collector.log())
    }

    /// Runs a server, and its client to the end. Returns the server, which still runs.
    fn talk(&self, program: &str) -> anyhow::Result<Running> {
        let [left, right] = &self.wire.names;
        let app = |role: &str, namespace: &str| {
            let mut app = Command::new(self.python);
            app.arg(machine::workspace().join(format!("xtask/e2e/traces/{program}_app.py")));
            app.args([role, &format!("{program}-{role}"), namespace, &self.address, &PORT.to_string()]);
            app.env("OTEL_EXPORTER_OTLP_ENDPOINT", self.collector.http());
            app
        };
        let server = Running::start(&mut app("server", right), "listening")?;
        machine::output(app("client", left).args([REQUESTS.to_string(), server.id().to_string()]))?;
        Ok(server)
    }

    /// Waits for traces of slow packets that satisfy a condition.
    fn slow(&self, service: &str, complete: impl Fn(&Trace) -> bool) -> anyhow::Result<Vec<Trace>> {
        let mut found = Vec::new();
        process::wait_for("the slow packets in Jaeger", patience(PATIENCE), || {
            found = self.jaeger.traces(service, LATE)?;
            Ok((found.iter().filter(|trace| complete(trace)).count() >= SLOW).then_some(()))
        })
        .with_context(|| format!("{} of {SLOW} traces: {found:#?}", found.len()))?;
        // On a busy machine, other requests are slow for other reasons.
        found.retain(&complete);
        Ok(found)
    }

    /// Checks that the packets of slow requests are in the traces of their requests.
    fn requests(&self, program: &str) -> anyhow::Result<()> {
        let services = ["client", "server"].map(|role| format!("{program}-{role}"));
        let _server = self.talk(program)?;
        let complete = |trace: &Trace| has_waited(trace) && span_of(trace, &services[1]).is_some();
        let traces = self.slow(&services[0], complete)?;
        for trace in &traces {
            request(trace, &services, self.version).with_context(|| format!("{trace:#?}"))?;
        }
        self.arrived(&traces)?;
        println!("e2e traces: {} slow requests of {program} over {} are in Jaeger", traces.len(), self.version);
        traces.first().iter().for_each(|trace| print(trace));
        Ok(())
    }

    /// Checks that slow datagrams are roots, and agree with the times of the programs.
    fn datagrams(&self) -> anyhow::Result<()> {
        let _server = self.talk(DATAGRAMS)?;
        let is_datagram = |trace: &Trace| {
            // Clients may read answers late.
            let is_of_server = |packet: &Span| {
                let is_udp = packet.text("network.transport") == Some(DATAGRAMS);
                is_udp && packet.tags.iter().any(|tag| tag.key == "network.local.port" && tag.value == PORT)
            };
            receive(trace).is_some_and(is_of_server) && has_waited(trace)
        };
        let traces = self.slow(NODE, is_datagram)?;
        let times = process::wait_for("the spans of the programs", patience(PATIENCE), || {
            let [sent, received] = ["client", "server"].map(|role| {
                let traces = self.jaeger.traces(&format!("{DATAGRAMS}-{role}"), Duration::ZERO)?;
                Ok::<_, anyhow::Error>(traces.into_iter().flat_map(|trace| trace.spans).collect::<Vec<_>>())
            });
            let times = Times { sent: sent?, received: received? };
            Ok((times.sent.len().min(times.received.len()) >= REQUESTS).then_some(times))
        })?;
        for trace in &traces {
            times.check(trace, self.version).with_context(|| format!("{trace:#?}"))?;
        }
        self.arrived(&traces)?;
        println!("e2e traces: {} slow datagrams over {} are in Jaeger", traces.len(), self.version);
        traces.first().iter().for_each(|trace| print(trace));
        Ok(())
    }

    /// Checks that the collector received these packets, and an exemplar that names one. A snapshot that a newer one replaced takes its
    /// exemplars with it.
    fn arrived(&self, traces: &[Trace]) -> anyhow::Result<()> {
        process::wait_for("the slow packets and an exemplar in the collector's output", patience(PATIENCE), || {
            let (spans, requests) = (self.collector.spans()?, self.collector.requests()?);
            for trace in traces {
                if !exported(trace, &spans)? {
                    return Ok(None);
                }
            }
            Ok(traces.iter().any(|trace| has_exemplar(trace, &requests)).then_some(()))
        })
    }
}
