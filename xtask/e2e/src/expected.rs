//! Content of the sidecar's requests that tests expect on any node with traffic.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::metrics::v1::{ExponentialHistogramDataPoint, Metric, metric::Data};
use xtask_e2e::collector::otlp::{Point as _, Request, attribute, has, histograms, number, resource};

const CPU_TIME: &str = "undercurrent.cpu.time";
const LATENCY: &str = "undercurrent.network.receive.duration";

/// Checks that the node's resource and scope identify the sidecar.
pub fn node(request: &Request) -> anyhow::Result<()> {
    let mut resources = request.resource_metrics.iter();
    let node = resources.find(|of| has(resource(of), "service.name", "undercurrent"));
    let node = node.context("no resource has service.name=undercurrent")?;
    ensure!(attribute(resource(node), "service.instance.id").is_some(), "the node's resource lacks its id");
    for metrics in &node.scope_metrics {
        let name = metrics.scope.as_ref().map(|scope| scope.name.as_str());
        ensure!(name == Some("undercurrent"), "metrics have the scope {name:?}");
        ensure!(!metrics.schema_url.is_empty(), "the scope has no schema URL");
    }
    Ok(())
}

/// Checks that a request has the name of the host. A container needs access to the host's files for this name.
pub fn host_name(request: &Request) -> anyhow::Result<()> {
    let has_name = request.resource_metrics.iter().any(|of| attribute(resource(of), "host.name").is_some());
    ensure!(has_name, "no resource has host.name");
    Ok(())
}

/// Checks that the node used CPU time.
pub fn cpu_time(request: &Request) -> anyhow::Result<()> {
    let metric = find(request, CPU_TIME)?;
    let Some(Data::Sum(sum)) = &metric.data else { anyhow::bail!("{CPU_TIME} is not a sum") };
    ensure!(sum.is_monotonic && metric.unit == "s", "{CPU_TIME} is not a counter of seconds");
    let spent: f64 = sum.data_points.iter().filter_map(number).sum();
    ensure!(spent > 0.0, "the node used no CPU time");
    Ok(())
}

/// Returns the number of packets of a transport protocol that were timed at the `transport` layer, over all workloads.
pub fn received(request: &Request, transport: &str) -> anyhow::Result<u64> {
    let of_transport = latencies(request)?.into_iter().filter(|point| {
        has(&point.attributes, "undercurrent.network.layer", "transport")
            && has(&point.attributes, "network.transport", transport)
    });
    Ok(of_transport.map(|point| point.count).sum())
}

/// Checks that histograms have buckets: the durations of hundreds of packets do not fall into one bucket.
pub fn buckets(request: &Request) -> anyhow::Result<()> {
    let points = latencies(request)?;
    let scales: BTreeSet<_> = points.iter().map(|point| point.scale).collect();
    ensure!(scales.len() == 1, "{LATENCY} has histograms of several scales: {scales:?}");
    let used = |point: &&ExponentialHistogramDataPoint| {
        let counts = point.positive.iter().flat_map(|buckets| &buckets.bucket_counts);
        counts.filter(|count| **count > 0).count()
    };
    ensure!(points.iter().map(used).max() > Some(1), "no histogram of {LATENCY} uses more than one bucket");
    Ok(())
}

/// Returns the points of the node and of the running workloads.
fn latencies(request: &Request) -> anyhow::Result<Vec<&ExponentialHistogramDataPoint>> {
    find(request, LATENCY)?;
    let mut points = Vec::new();
    for (_, metric) in request.metrics().filter(|(_, metric)| metric.name == LATENCY) {
        let is_histogram = matches!(&metric.data, Some(Data::ExponentialHistogram(_)));
        ensure!(is_histogram, "{LATENCY} is not an exponential histogram");
        points.extend(histograms(metric).iter().filter(|point| !point.is_end()));
    }
    Ok(points)
}

fn find<'a>(request: &'a Request, name: &str) -> anyhow::Result<&'a Metric> {
    let found = request.metrics().find(|(_, metric)| metric.name == name);
    Ok(found.with_context(|| format!("no {name} arrived"))?.1)
}
