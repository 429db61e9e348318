//! What the sidecar's requests hold on any node with traffic.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};

use xtask_e2e::collector::otlp::{ExponentialHistogram, Metric, Point, Request};

const CPU_TIME: &str = "undercurrent.network.cpu.time";
const LATENCY: &str = "undercurrent.network.receive.duration";

/// The node's resource and the scope say who measured.
pub fn node(request: &Request) -> anyhow::Result<()> {
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
pub fn softirq_time(request: &Request) -> anyhow::Result<()> {
    let metric = find(request, CPU_TIME)?;
    let sum = metric.sum.as_ref().with_context(|| format!("{CPU_TIME} is no sum"))?;
    ensure!(sum.is_monotonic && metric.unit == "s", "{CPU_TIME} is no counter of seconds");
    let receiving = sum.data_points.iter().filter(|point| is(point, "undercurrent.network.event", "receive_softirq"));
    let spent: f64 = receiving.filter_map(|point| point.value.get()).sum();
    ensure!(spent > 0.0, "no time was spent in the receive softirq under traffic");
    Ok(())
}

/// How many packets of a transport protocol were timed at the `transport` layer, whosever they were.
pub fn received(request: &Request, transport: &str) -> anyhow::Result<u64> {
    let of_transport = latencies(request)?.into_iter().filter(|point| {
        is(point, "undercurrent.network.layer", "transport") && is(point, "network.transport", transport)
    });
    Ok(of_transport.map(|point| point.value.count).sum())
}

/// Histograms came with their buckets: hundreds of packets do not all take the same time.
pub fn buckets(request: &Request) -> anyhow::Result<()> {
    let points = latencies(request)?;
    let scales: BTreeSet<_> = points.iter().map(|point| point.value.scale).collect();
    ensure!(scales.len() == 1, "{LATENCY} has histograms of several scales: {scales:?}");
    let used = |point: &&Point<ExponentialHistogram>| {
        point.value.positive.bucket_counts.iter().filter(|count| **count > 0).count()
    };
    ensure!(points.iter().map(used).max() > Some(1), "no histogram of {LATENCY} uses more than one bucket");
    Ok(())
}

/// The node's, and those of the workloads that are not over.
fn latencies(request: &Request) -> anyhow::Result<Vec<&Point<ExponentialHistogram>>> {
    find(request, LATENCY)?;
    let mut points = Vec::new();
    for (_, metric) in request.metrics().filter(|(_, metric)| metric.name == LATENCY) {
        let data = metric.exponential_histogram.as_ref();
        let data = data.with_context(|| format!("{LATENCY} is no exponential histogram"))?;
        points.extend(data.data_points.iter().filter(|point| !point.is_end()));
    }
    Ok(points)
}

fn find<'a>(request: &'a Request, name: &str) -> anyhow::Result<&'a Metric> {
    let found = request.metrics().find(|(_, metric)| metric.name == name);
    Ok(found.with_context(|| format!("no {name} arrived"))?.1)
}

fn is<V>(point: &Point<V>, key: &str, value: &str) -> bool {
    point.attributes.get(key).is_some_and(|found| found == value)
}
