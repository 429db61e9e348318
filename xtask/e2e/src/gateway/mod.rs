//! Two replicas of otel-config/gateway.yaml, with otel-config/without-internal.yaml, behind otel-config/agent.yaml. Every span of a trace with a slow packet arrives at the backend,
//! whichever replica received it; pods have the names of Kubernetes; and internal series are dropped.

mod kubernetes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use xtask_common::{machine, process};
use xtask_e2e::collector::{
    gateway::{self, Gateway, Surroundings},
    otlp::{Request, attribute, has, resource},
    running::Collector,
};

use crate::require_root;

/// The time until metrics and decided traces arrive on a busy machine. A decision takes 15 s.
const ARRIVAL: Duration = Duration::from_secs(90);
/// Traces of applications.
const TRACES: usize = 60;
/// One trace in this number has a slow packet.
const SLOW: usize = 6;
/// Metrics that remain, and some that are dropped.
const REMAINING: [&str; 4] = [
    "undercurrent.build.info",
    "undercurrent.lost.events",
    "undercurrent.sampling.ratio",
    "undercurrent.softnet.processed",
];
const DROPPED: [&str; 7] = [
    "undercurrent.hook.status",
    "undercurrent.map.memory",
    "undercurrent.lost",
    "undercurrent.collect.duration",
    "otel.sdk.exporter.metric_data_point.exported",
    "process.cpu.time",
    "process.memory.usage",
];

/// Runs the scenario.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    gateway::validate()?;
    let backend = Collector::start()?;
    let folder = tempfile::tempdir().context("cannot create a folder for the client's configuration")?;
    let config = folder.path().join("kubeconfig");
    fs::write(&config, kubernetes::serve()?)?;
    let surroundings = Surroundings { backend: &backend.http(), kubernetes: &config, kept: 0 };
    let port = port_of_both()?;
    let replicas = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()]
        .map(|balanced| Gateway::start(balanced, &surroundings));
    let [first, second] = replicas;
    let gateways = [first?, second?];
    let seen = traces(&gateways, &backend)
        .and_then(|()| names(&gateways[0], &backend))
        .and_then(|()| internal(sidecar, &gateways[1], &backend));
    seen.with_context(|| format!("the gateways logged:\n{}\n{}", gateways[0].log(), gateways[1].log()))
}

/// Returns a port that is free on loopback of both IP versions.
fn port_of_both() -> anyhow::Result<u16> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    let port = first.local_addr()?.port();
    TcpListener::bind((Ipv6Addr::LOCALHOST, port)).context("the port is not free for IPv6")?;
    Ok(port)
}

/// Sends to one signal of a gateway, in OTLP/JSON.
fn send(gateway: &Gateway, signal: &str, request: &Value) -> anyhow::Result<()> {
    let url = format!("{}/v1/{signal}", gateway.endpoint());
    ureq::post(url)
        .header("Content-Type", "application/json")
        .send(request.to_string())
        .context("a gateway refuses")?;
    Ok(())
}

fn attributes(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect()
}

fn now() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

fn span(trace: usize, id: usize, name: &str, list: &[(&str, &str)]) -> anyhow::Result<Value> {
    let end = now()?;
    let span = json!({
        "traceId": format!("{:032x}", trace + 1), "spanId": format!("{:016x}", 16 * trace + id + 1), "name": name, "kind": 1,
        "startTimeUnixNano": (end - 1_000_000).to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes(list),
    });
    let resource = json!({"attributes": attributes(&[("service.name", "orders")])});
    Ok(json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}))
}

/// Sends the spans of each trace to both replicas. Exactly the traces with a slow packet arrive, with all spans.
fn traces(gateways: &[Gateway; 2], backend: &Collector) -> anyhow::Result<()> {
    let is_slow = |trace: usize| trace.is_multiple_of(SLOW);
    for trace in 0..TRACES {
        send(&gateways[trace % 2], "traces", &span(trace, 0, "GET /orders", &[])?)?;
        send(&gateways[(trace + 1) % 2], "traces", &span(trace, 1, "SELECT", &[])?)?;
        // A packet of the uniform selection does not keep a trace.
        let selection = if is_slow(trace) { "slow" } else { "uniform" };
        let packet = span(trace, 2, "network receive", &[("undercurrent.selection", selection)])?;
        send(&gateways[trace / 2 % 2], "traces", &packet)?;
    }
    let expected: BTreeMap<String, usize> =
        (0..TRACES).filter(|trace| is_slow(*trace)).map(|trace| (format!("{:032x}", trace + 1), 3)).collect();
    let arrived = || -> anyhow::Result<BTreeMap<String, usize>> {
        let mut traces = BTreeMap::new();
        for span in backend.spans().unwrap_or_default() {
            let id: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
            *traces.entry(id).or_default() += 1;
        }
        Ok(traces)
    };
    process::wait_for("the traces with slow packets", ARRIVAL, || {
        let traces = arrived()?;
        Ok(expected.iter().all(|(trace, spans)| traces.get(trace) == Some(spans)).then_some(()))
    })
    .with_context(|| format!("{:?} arrived", arrived()))?;
    let arrived = arrived()?;
    ensure!(arrived == expected, "traces without a slow packet arrived: {arrived:?}");
    println!("e2e gateway: {} of {TRACES} traces have a slow packet, and arrived with all spans", expected.len());
    Ok(())
}

/// Checks that a pod's uid and a container's id suffice for the names.
fn names(gateway: &Gateway, backend: &Collector) -> anyhow::Result<()> {
    for identity in [("k8s.pod.uid", kubernetes::UID), ("container.id", kubernetes::CONTAINER)] {
        let workload = [identity, ("undercurrent.workload.cgroup", identity.0)];
        let found = process::wait_for("the names of the pod", ARRIVAL, || {
            // The gateway learns the names after its start.
            let time = now()?.to_string();
            let points = json!([{"asInt": "1", "startTimeUnixNano": time, "timeUnixNano": time}]);
            let metric = json!({"name": "test", "sum": {"dataPoints": points, "aggregationTemporality": 2, "isMonotonic": true}});
            let scopes = json!([{"metrics": [metric]}]);
            let resource_of = json!({"attributes": attributes(&workload)});
            send(gateway, "metrics", &json!({"resourceMetrics": [{"resource": resource_of, "scopeMetrics": scopes}]}))?;
            let requests = backend.requests().unwrap_or_default();
            let mut resources = requests.iter().flat_map(|request| &request.resource_metrics).map(resource);
            let is_named = |list: &&[_]| has(list, workload[1].0, workload[1].1) && attribute(list, "k8s.pod.name").is_some();
            Ok(resources.find(is_named).map(<[_]>::to_vec))
        })
        .with_context(|| format!("by {}", identity.0))?;
        for (key, name) in kubernetes::NAMES {
            ensure!(has(&found, key, name), "{} does not lead to {key}={name}: {found:?}", identity.0);
        }
    }
    println!("e2e gateway: a pod has its names by k8s.pod.uid, and by container.id");
    Ok(())
}

/// Checks that the internal series of a sidecar are dropped, and its other series arrive through an agent.
fn internal(sidecar: &Path, gateway: &Gateway, backend: &Collector) -> anyhow::Result<()> {
    let mut command = Command::new(sidecar);
    command.args(["run", "--output", "otlp", "--interval", "1s", "--duration", "4s"]);
    let agent = Collector::agent_of(gateway.grpc())?;
    machine::output(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", agent.endpoint()))?;
    let arrived = || -> BTreeSet<String> {
        let requests = backend.requests().unwrap_or_default();
        requests.iter().flat_map(Request::metrics).map(|(_, metric)| metric.name.clone()).collect()
    };
    process::wait_for("the sidecar's metrics", ARRIVAL, || {
        Ok(REMAINING.iter().all(|name| arrived().contains(*name)).then_some(()))
    })
    .with_context(|| format!("the agent logged:\n{}", agent.log()))?;
    let arrived = arrived();
    let unexpected: Vec<_> = DROPPED.iter().filter(|name| arrived.contains(**name)).collect();
    ensure!(unexpected.is_empty(), "{unexpected:?} are not dropped");
    println!("e2e gateway: {} metrics of the sidecar arrived, without internal ones", arrived.len());
    Ok(())
}
