//! The sidecar sends to a real collector over loopback, and what the collector wrote is read.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use super::{invariants, require_root, traffic::Traffic};
use crate::{
    collector::{
        otlp::{ExponentialHistogram, Metric, Point, Request},
        running::Collector,
    },
    machine,
};

/// How many intervals the sidecar runs for, a second each.
const INTERVALS: usize = 5;

/// Runs the sidecar for five intervals under traffic, and checks what the collector made of its requests.
pub fn run(sidecar: &Path) -> anyhow::Result<()> {
    require_root()?;
    let collector = Collector::start()?;
    let traffic = Traffic::start()?;
    let mut command = Command::new(sidecar);
    command
        .args(["run", "--output", "otlp", "--interval", "1s", "--duration", &format!("{INTERVALS}s")])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    let outcome = machine::output(&mut command);
    let exchanges = traffic.stop()?;
    outcome.with_context(|| format!("the sidecar failed; the collector logged:\n{}", collector.log()))?;
    let requests = collector.stop()?;
    check(&requests)?;
    println!(
        "e2e collector: {} requests hold under {exchanges} exchanges of each kind, metrics: {}",
        requests.len(),
        names(&requests).into_iter().collect::<Vec<_>>().join(" ")
    );
    Ok(())
}

/// What this scenario expects, beside what holds of everything.
fn check(requests: &[Request]) -> anyhow::Result<()> {
    // The last interval and the end of the run may meet, before or after one another.
    let expected = INTERVALS - 1..=INTERVALS + 1;
    ensure!(expected.contains(&requests.len()), "{} requests arrived, {expected:?} were due", requests.len());
    invariants::check(requests)?;
    let last = requests.last().context("no request arrived")?;
    check_node(last)?;
    check_softirq_time(last)?;
    check_latency(requests.first().context("no request arrived")?, last)
}

/// The names of all metrics that arrived.
fn names(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().flat_map(Request::metrics).map(|(_, metric)| metric.name.as_str()).collect()
}

/// The node's resource and the scope say who measured.
fn check_node(request: &Request) -> anyhow::Result<()> {
    let node = request
        .resource_metrics
        .iter()
        .find(|of| of.resource.attributes.get("service.name").is_some_and(|name| name == "undercurrent"))
        .context("no resource is of service.name=undercurrent")?;
    for key in ["service.instance.id", "host.name"] {
        ensure!(node.resource.attributes.contains_key(key), "the node's resource lacks {key}");
    }
    for scope in &node.scope_metrics {
        ensure!(scope.scope.name == "undercurrent", "metrics of the scope {:?}", scope.scope.name);
        ensure!(!scope.schema_url.is_empty(), "the scope has no schema URL");
    }
    Ok(())
}

/// Receiving costs time wherever there is traffic.
fn check_softirq_time(request: &Request) -> anyhow::Result<()> {
    let metric = find(request, "undercurrent.network.cpu.time")?;
    let sum = metric.sum.as_ref().context("undercurrent.network.cpu.time is no sum")?;
    ensure!(sum.is_monotonic && metric.unit == "s", "undercurrent.network.cpu.time is no counter of seconds");
    let receiving = |key: &str| key == "receive_softirq";
    let spent: f64 = sum
        .data_points
        .iter()
        .filter(|point| point.attributes.get("undercurrent.network.event").is_some_and(|event| receiving(event)))
        .filter_map(|point| point.value.get())
        .sum();
    ensure!(spent > 0.0, "no time was spent in the receive softirq under traffic");
    Ok(())
}

/// The latency at `transport` is there for TCP and UDP, counts on, and kept its buckets.
fn check_latency(first: &Request, last: &Request) -> anyhow::Result<()> {
    for transport in ["tcp", "udp"] {
        let (before, after) = (received(first, transport)?, received(last, transport)?);
        ensure!(before < after, "{transport}: {before} values in the first request, {after} in the last");
    }
    let metric = find(last, "undercurrent.network.receive.duration")?;
    let scales: BTreeSet<_> = points(metric)?.iter().map(|point| point.value.scale).collect();
    ensure!(scales.len() == 1, "histograms of several scales: {scales:?}");
    // Hundreds of packets do not all take the same time: one bucket would mean that the buckets were lost on the way.
    let widest = points(metric)?.iter().map(|point| used_buckets(&point.value)).max();
    ensure!(widest > Some(1), "no histogram of {} uses more than one bucket", metric.name);
    Ok(())
}

/// How many packets of a transport protocol were timed at the `transport` layer.
fn received(request: &Request, transport: &str) -> anyhow::Result<u64> {
    let is = |point: &Point<_>, key: &str, value: &str| point.attributes.get(key).is_some_and(|found| found == value);
    let of_transport = points(find(request, "undercurrent.network.receive.duration")?)?.iter().filter(|point| {
        is(point, "undercurrent.network.layer", "transport") && is(point, "network.transport", transport)
    });
    Ok(of_transport.map(|point| point.value.count).sum())
}

fn used_buckets(histogram: &ExponentialHistogram) -> usize {
    histogram.positive.bucket_counts.iter().filter(|count| **count > 0).count()
}

fn points(metric: &Metric) -> anyhow::Result<&[Point<ExponentialHistogram>]> {
    let data = metric.exponential_histogram.as_ref();
    Ok(&data.with_context(|| format!("{} is no exponential histogram", metric.name))?.data_points)
}

/// A metric of the node's.
fn find<'a>(request: &'a Request, name: &str) -> anyhow::Result<&'a Metric> {
    let found = request.metrics().find(|(_, metric)| metric.name == name);
    Ok(found.with_context(|| format!("no {name} arrived"))?.1)
}
