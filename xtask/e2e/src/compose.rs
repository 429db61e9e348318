//! Starts examples/docker-compose with a real Docker engine, without Grafana. The names of the containers arrive at the collector, and an
//! exemplar in Prometheus leads to the trace of a slow request in Jaeger.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;
use xtask_common::{machine, process};

use super::{
    engines::{Cgroups, Client, Docker, images},
    expected, require_root,
};
use xtask_e2e::{
    collector::otlp::{self, Request, attributes, resource},
    jaeger::running::{Span, Trace, parse},
    prometheus::running::exemplars,
};

/// Timeout for the start of all containers, two intervals of the example, and a slow request with its exemplar.
pub const ARRIVAL: Duration = Duration::from_secs(120);
/// Minimum number of TCP packets between two requests, five seconds apart. The load requests twenty times a second, and each request leads
/// to another one.
const FEWEST_PACKETS: u64 = 200;
/// The least duration of a late read in microseconds, half of the delay.
const LATE: u64 = 100_000;

/// Starts the example, waits for two requests of the sidecar in the collector's output, and stops the example.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let engine = Docker::start(Cgroups::Unified)?;
    check_files(&engine)?;
    images::provide(&engine, sidecar)?;
    let took = watch(&engine)?;
    engine.end()?;
    println!("e2e compose: the example's collector wrote two requests of the sidecar after {took:.1?}");
    Ok(())
}

/// Starts and stops the example. Returns the time until an exemplar led to its trace.
fn watch(engine: &Docker) -> anyhow::Result<Duration> {
    let stack = Stack::build(engine)?;
    let start = Instant::now();
    let seen = stack.up().and_then(|()| {
        process::wait_for("the names of the containers", ARRIVAL, || stack.names()).with_context(|| stack.last())?;
        process::wait_for("the traffic of the services in the collector's output", ARRIVAL, || {
            let Some((previous, last)) = stack.metrics()? else { return Ok(None) };
            // The load starts after its services.
            Ok(has_traffic(&previous, &last)?.then_some(last))
        })
        .and_then(|last| check(&last))?;
        let trace = process::wait_for("an exemplar that leads to a slow request", ARRIVAL, || slow_request(engine))?;
        process::wait_for("the search of the panel with slow traces", ARRIVAL, || searched(engine))?;
        process::wait_for("the calls of the services in the graph", ARRIVAL, || stack.graph())?;
        Ok(trace)
    });
    let trace = seen.with_context(|| format!("the containers logged:\n{}", stack.logs()))?;
    let took = start.elapsed();
    stack.down()?;
    println!("e2e compose: an exemplar in Prometheus leads to the trace {} in Jaeger", trace.id);
    Ok(took)
}

/// Checks that compose accepts both files that grant privileges. The host may not support one of them.
fn check_files(engine: &Docker) -> anyhow::Result<()> {
    for privileges in ["docker-compose.override.yaml", RESTRICTED] {
        machine::output(compose(engine, privileges).args(["config", "--quiet"]))?;
    }
    Ok(())
}

/// Returns true if two requests of the sidecar, one interval apart, show the traffic of the services.
fn has_traffic(previous: &Request, last: &Request) -> anyhow::Result<bool> {
    let packets = expected::received(last, "tcp")?.saturating_sub(expected::received(previous, "tcp")?);
    Ok(packets >= FEWEST_PACKETS)
}

/// Checks that a request of the sidecar is correct.
fn check(last: &Request) -> anyhow::Result<()> {
    expected::node(last)?;
    expected::cpu_time(last)
}

/// The query APIs of the example's Prometheus and Jaeger.
pub const PROMETHEUS: &str = "http://127.0.0.1:9090/api/v1";
const JAEGER: &str = "http://127.0.0.1:16686/api";
/// Selects the histogram with the reads of the service that reads late.
const READS: &str =
    r#"undercurrent_network_receive_duration_seconds{job="orders",undercurrent_network_layer="socket_read"}"#;
/// Prints the answer to a request, for a call in the engine's network namespace.
const FETCH: &str = "import sys, urllib.parse, urllib.request\n\
    url = sys.argv[1] + ('?' + urllib.parse.urlencode([tuple(p.split('=', 1)) for p in sys.argv[2:]]) if sys.argv[2:] else '')\n\
    print(urllib.request.urlopen(url, timeout=10).read().decode())";

/// Returns the answer to a request of a service of the example.
pub fn fetch(engine: &Docker, url: &str, parameters: &[&str]) -> anyhow::Result<String> {
    machine::output(engine.daemon().inside().args(["python3", "-c", FETCH, url]).args(parameters))
}

/// Returns the trace to which an exemplar of a late read leads. The trace has the spans of both services, and the span of the packet
/// with the name of the service that read it.
pub fn slow_request(engine: &Docker) -> anyhow::Result<Option<Trace>> {
    let query = format!("query={READS}");
    let answer = fetch(engine, &format!("{PROMETHEUS}/query_exemplars"), &[&query, "start=0", "end=9999999999"])?;
    for id in exemplars(&answer)?.iter().filter_map(|labels| labels.get("trace_id")) {
        // Jaeger answers 404 for a trace that has not arrived.
        let Ok(answer) = fetch(engine, &format!("{JAEGER}/traces/{id}"), &[]) else { continue };
        if let Some(trace) = parse(&answer)?.into_iter().find(is_complete) {
            return Ok(Some(trace));
        }
    }
    Ok(None)
}

/// The dashboard of a workload.
pub const DASHBOARD: &str = "otel-config/grafana/workload.json";

/// Reads the dashboard of a workload.
pub fn dashboard() -> anyhow::Result<Value> {
    let path = machine::workspace().join(DASHBOARD);
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {DASHBOARD}"))?;
    serde_json::from_str(&text).with_context(|| format!("{DASHBOARD} is no dashboard"))
}

/// Runs the search of the dashboard's panel for the service that reads late. Returns `Some` if a trace of a slow request is found.
fn searched(engine: &Docker) -> anyhow::Result<Option<()>> {
    let dashboard = dashboard()?;
    let targets = dashboard["panels"].as_array().into_iter().flatten().flat_map(|panel| panel["targets"].as_array());
    let search =
        targets.flatten().find(|target| target["queryType"] == "search").context("no panel searches Jaeger")?;
    let (operation, limit) = (search["operation"].as_str().context("the search has no operation")?, &search["limit"]);
    let parameters = ["service=orders".to_owned(), format!("operation={operation}"), format!("limit={limit}")];
    let answer = fetch(engine, &format!("{JAEGER}/traces"), &parameters.each_ref().map(String::as_str))?;
    Ok(parse(&answer)?.iter().any(is_complete).then_some(()))
}

/// Returns true if the packet of a request of `storefront` waited until `orders` read it.
fn is_complete(trace: &Trace) -> bool {
    let service = |span: &Span| trace.processes.get(&span.process).map(|process| process.service_name.as_str());
    let is_packet = |span: &&Span| span.operation_name == "network receive";
    let services: BTreeSet<_> = trace.spans.iter().filter(|span| !is_packet(span)).filter_map(service).collect();
    let waited = |span: &Span| {
        let is_read = span.text("undercurrent.network.layer") == Some("socket_read");
        is_read && span.duration >= LATE && service(span) == Some("orders")
    };
    ["orders", "storefront"].iter().all(|name| services.contains(name))
        && trace.spans.iter().filter(is_packet).any(waited)
}

/// The name of the project: the first part of the names of containers.
const PROJECT: &str = "shop";
/// Privileges that every test host can grant, including hosts without CAP_SYS_RESOURCE.
const RESTRICTED: &str = "docker-compose.restricted.yaml";

fn folder() -> PathBuf {
    machine::workspace().join("examples/docker-compose")
}

fn compose(engine: &Docker, privileges: &str) -> Command {
    let mut command = engine.compose();
    command.args(["--project-name", PROJECT]);
    for file in ["docker-compose.yaml", privileges, "docker-compose.without-grafana.yaml"] {
        command.arg("--file").arg(folder().join(file));
    }
    command
}

/// The example's containers. They end with the engine at the latest.
pub struct Stack<'a> {
    engine: &'a Docker,
    output: tempfile::TempDir,
}

impl<'a> Stack<'a> {
    /// Builds the images with the example's Dockerfiles.
    pub fn build(engine: &'a Docker) -> anyhow::Result<Self> {
        let stack = Self { engine, output: tempfile::tempdir().context("cannot create a folder for the collector")? };
        machine::output(stack.compose().arg("build")).context("the example's images do not build")?;
        Ok(stack)
    }

    /// Starts the containers.
    pub fn up(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["up", "--detach", "--no-build"])).context("the example does not start")?;
        Ok(())
    }

    /// Returns a call of `docker-compose` for the example.
    pub fn compose(&self) -> Command {
        let mut command = compose(self.engine, RESTRICTED);
        command.env("OUTPUT", self.output.path());
        command.env("DOCKER_SOCKET", self.engine.daemon().folder().socket());
        command
    }

    /// Returns once every container of the example with traffic has its name, and its service, in the sidecar's metrics.
    fn names(&self) -> anyhow::Result<Option<()>> {
        let Some((_, last)) = self.metrics()? else { return Ok(None) };
        let has = |service: &&str| {
            // Compose 1 joins by `_`, and Compose 2 by `-`.
            let names = ["_", "-"].map(|joint| [PROJECT, service, "1"].join(joint));
            last.resource_metrics.iter().map(resource).any(|of| {
                names.iter().any(|name| otlp::has(of, "container.name", name)) && otlp::has(of, "service.name", service)
            })
        };
        Ok(["storefront", "orders"].iter().all(has).then_some(()))
    }

    /// Draws the graph of services by the command of the example's README. Returns `Some` if it has the calls of the load and of `storefront`.
    fn graph(&self) -> anyhow::Result<Option<()>> {
        let mut exec = self.compose();
        exec.args(["exec", "-T", "sidecar", "undercurrent", "graph", "--prometheus", "http://prometheus:9090"]);
        let graph = machine::output(&mut exec)?;
        let calls = [("load", "storefront"), ("storefront", "orders")];
        Ok(calls
            .iter()
            .all(|(client, server)| graph.contains(&format!("\"{client}\" -> \"{server}\" [")))
            .then_some(()))
    }

    /// Returns the last two requests of the sidecar in the collector's output, once there are two.
    fn metrics(&self) -> anyhow::Result<Option<(Request, Request)>> {
        let file = self.output.path().join("metrics.jsonl");
        if !file.exists() {
            return Ok(None);
        }
        let mut requests: Vec<_> =
            Request::read_all(&file)?.into_iter().filter(|request| expected::node(request).is_ok()).collect();
        let last = requests.pop();
        Ok(requests.pop().zip(last))
    }

    /// Describes the last request of the sidecar.
    fn last(&self) -> String {
        let requests = Request::read_all(&self.output.path().join("metrics.jsonl")).unwrap_or_default();
        let resources =
            requests.last().into_iter().flat_map(|last| &last.resource_metrics).map(resource).map(attributes);
        format!("the last of {} requests has the resources {:?}", requests.len(), resources.collect::<Vec<_>>())
    }

    /// Returns the logs of all containers.
    pub fn logs(&self) -> String {
        machine::output(self.compose().args(["logs", "--no-color"])).unwrap_or_else(|error| format!("none: {error:#}"))
    }

    /// Stops and removes the containers.
    pub fn down(&self) -> anyhow::Result<()> {
        machine::output(self.compose().args(["down", "--volumes", "--timeout", "5"]))?;
        Ok(())
    }
}
