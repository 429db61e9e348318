//! Runs the sidecar with a real collector on loopback and checks the collector's output.

use std::{collections::BTreeSet, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, bail, ensure};
use xtask_common::{
    machine,
    process::{self, patience},
    traffic::Traffic,
};
use xtask_e2e::collector::{otlp::Request, running::Collector};

use crate::{expected, invariants, require_root};

/// Number of intervals of the run, one second each.
const INTERVALS: usize = 5;
/// Number of intervals of a run over HTTP.
const HTTP_INTERVALS: usize = 2;
/// The longest time from the end of the sidecar until the collector has written spans and log records.
const ARRIVAL: Duration = Duration::from_secs(5);
/// A part of the first record of the sidecar's own log after its start.
const FIRST_RECORD: &str = " signals: ";
/// Makes every measured packet a slow one, within the budget of spans.
const SLOW: &str = "packets: {sampling: all}\nsignals: {slow_packets: {threshold: 1us}}\n";

/// Runs the sidecar with a collector under traffic, over each protocol.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    grpc(sidecar)?;
    for protocol in ["http/protobuf", "http/json"] {
        http(sidecar, protocol).with_context(|| format!("over {protocol}"))?;
    }
    Ok(())
}

/// Returns a command that runs every signal for some intervals of a second, and delivers to an endpoint.
fn sidecar_run(sidecar: &Path, intervals: usize, endpoint: &str) -> Command {
    let mut command = Command::new(sidecar);
    command.args(["run", "--level", "detailed", "--output", "otlp", "--interval", "1s"]);
    command.args(["--duration", &format!("{intervals}s")]);
    command.env("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd").env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    command
}

/// Runs the sidecar for two intervals, and checks that metrics, spans and logs arrive over HTTP.
fn http(sidecar: &Path, protocol: &str) -> anyhow::Result<()> {
    let collector = Collector::start()?;
    let traffic = Traffic::start()?;
    let config = tempfile::NamedTempFile::new()?;
    std::fs::write(config.path(), SLOW)?;
    let mut command = sidecar_run(sidecar, HTTP_INTERVALS, &collector.http());
    command.arg("--config").arg(config.path()).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    let outcome = machine::output(&mut command);
    traffic.stop()?;
    outcome.with_context(|| format!("the sidecar failed; the collector logged:\n{}", collector.log()))?;
    let written = || Ok((!collector.spans()?.is_empty() && collector.logs()?.contains(FIRST_RECORD)).then_some(()));
    process::wait_for("spans and log records in the collector's output", patience(ARRIVAL), written)?;
    let spans = collector.spans()?.len();
    let requests = collector.stop()?;
    invariants::check(&requests)?;
    let Some(last) = requests.last() else { bail!("no request arrived") };
    expected::node(last)?;
    expected::buckets(last)?;
    println!("e2e collector: {} requests, {spans} spans and the log arrived over {protocol}", requests.len());
    Ok(())
}

/// Runs the sidecar for five intervals over gRPC, and checks the requests that the collector received.
fn grpc(sidecar: &Path) -> anyhow::Result<()> {
    let collector = Collector::start()?;
    let traffic = Traffic::start()?;
    let outcome = machine::output(&mut sidecar_run(sidecar, INTERVALS, &collector.endpoint()));
    let exchanges = traffic.stop()?;
    outcome.with_context(|| format!("the sidecar failed; the collector logged:\n{}", collector.log()))?;
    let requests = collector.stop()?;
    check(&requests)?;
    println!(
        "e2e collector: {} requests are correct under {exchanges} exchanges of each kind, metrics: {}",
        requests.len(),
        names(&requests).into_iter().collect::<Vec<_>>().join(" ")
    );
    Ok(())
}

/// Checks the expectations of this scenario and the invariants of all requests.
fn check(requests: &[Request]) -> anyhow::Result<()> {
    // The last interval and the end of the run coincide, in any order.
    let expected = INTERVALS - 1..=INTERVALS + 1;
    ensure!(expected.contains(&requests.len()), "{} requests arrived, expected {expected:?}", requests.len());
    invariants::check(requests)?;
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { bail!("no request arrived") };
    expected::node(last)?;
    expected::host_name(last)?;
    expected::cpu_time(last)?;
    expected::buckets(last)?;
    for transport in ["tcp", "udp"] {
        let (before, after) = (expected::received(first, transport)?, expected::received(last, transport)?);
        ensure!(before < after, "{transport}: {before} packets timed in the first request, {after} in the last");
    }
    Ok(())
}

/// Returns the names of all received metrics.
fn names(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().flat_map(Request::metrics).map(|(_, metric)| metric.name.as_str()).collect()
}
