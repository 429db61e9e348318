//! The measurements of one container in the sidecar's requests.

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics};
use xtask_e2e::collector::otlp::{self, Point, Request, attribute, has, histograms, number, resource, sums};

use super::{
    containers::{Container, Ended, IMAGE, TAG},
    peer::Report,
};

const LATENCY: &str = "undercurrent.network.receive.duration";
const CPU_TIME: &str = "undercurrent.cpu.time";
const LOST: &str = "undercurrent.lost";

/// The cumulative measurements of a resource at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// Start of the measurements in nanoseconds since 1970.
    pub start: u64,
    /// `service.instance.id`.
    pub instance: String,
    /// Packets received at the layer `transport`.
    pub received: Report,
}

impl Ended {
    /// Checks that the last measurements equal the counters of the container's network namespace, that the names are correct,
    /// and that the series ended. Returns the last measurements, and true if the sidecar knew the names.
    pub fn check(&self, requests: &[Request]) -> anyhow::Result<(Totals, bool)> {
        let Self { container, report, .. } = self;
        let of = || format!("of the container {} ({})", container.name, container.id);
        let found = last(requests, &container.id)?.with_context(|| format!("no measurements {}", of()))?;
        // A segment that is retransmitted at the end of its connection may not find a socket.
        let tcp = report.tcp.saturating_sub(1)..=report.tcp;
        let agree = found.received.udp == report.udp && tcp.contains(&found.received.tcp);
        ensure!(agree, "{report:?} arrived, the sidecar counted {:?} {}", found.received, of());
        let mut history = requests.iter().filter_map(|request| container_of(request, &container.id).ok()?);
        ensure!(history.next_back().is_some_and(is_over), "no request marks the end {}", of());
        Ok((found, self.check_names(requests)?))
    }

    /// Checks that every exported name is correct, and that the last request has all names. Returns false if the sidecar
    /// exported no name of a container that may have ended too early.
    fn check_names(&self, requests: &[Request]) -> anyhow::Result<bool> {
        let Container { id, name, runtime, .. } = &self.container;
        for of in requests.iter().filter_map(|request| container_of(request, id).ok()?) {
            let found = attribute(resource(of), "container.runtime.name");
            ensure!(found.as_deref() == Some(runtime), "the container {id} has the runtime {found:?}, not {runtime}");
        }
        let mut named = 0;
        for (key, value) in
            [("container.name", name.as_str()), ("container.image.name", IMAGE), ("container.image.tags", TAG)]
        {
            let mut found = None;
            for request in requests {
                found = container_of(request, id)?.map(|of| attribute(resource(of), key)).or(found);
                let wrong = found.iter().flatten().find(|found| *found != value);
                ensure!(wrong.is_none(), "{key} of the container {id} is {wrong:?}, not {value}");
            }
            named += usize::from(found.flatten().is_some());
        }
        ensure!(
            named == 3 || (named == 0 && self.nameless),
            "only {named} of 3 names of the container {name} are known"
        );
        Ok(named == 3)
    }
}

/// Returns the resource of a container in a request.
///
/// # Errors
/// If the request has several resources of the container.
pub fn container_of<'a>(request: &'a Request, id: &str) -> anyhow::Result<Option<&'a ResourceMetrics>> {
    let mut of_id = request.resource_metrics.iter().filter(|of| has(resource(of), "container.id", id));
    let first = of_id.next();
    ensure!(of_id.next().is_none(), "one request has several resources of the container {id}");
    Ok(first)
}

/// Returns the node's resource.
pub fn node(request: &Request) -> Option<&ResourceMetrics> {
    request.resource_metrics.iter().find(|of| has(resource(of), "service.name", "undercurrent"))
}

/// Returns the last measurements of a container.
pub fn last(requests: &[Request], id: &str) -> anyhow::Result<Option<Totals>> {
    for request in requests.iter().rev() {
        if let Some(totals) = container_of(request, id)?.and_then(totals) {
            return Ok(Some(totals));
        }
    }
    Ok(None)
}

/// Returns a resource's measurements, or `None` if all its series have ended.
pub fn totals(of: &ResourceMetrics) -> Option<Totals> {
    let start = points(of).find(|point| !point.is_end())?.start();
    let instance = attribute(resource(of), "service.instance.id")?;
    Some(Totals { start, instance, received: Report { udp: received(of, "udp"), tcp: received(of, "tcp") } })
}

/// Returns the CPU time in seconds, or `None` if the resource has no such measurement.
pub fn cpu_time(of: &ResourceMetrics) -> Option<f64> {
    let values: Vec<_> = metrics(of, CPU_TIME).flat_map(sums).filter_map(number).collect();
    if values.is_empty() { None } else { Some(values.iter().sum()) }
}

/// Returns the number of packets of a transport protocol that were timed at the layer `transport`.
pub fn received(of: &ResourceMetrics, transport: &str) -> u64 {
    let points = metrics(of, LATENCY).flat_map(histograms).filter(|point| {
        has(&point.attributes, "undercurrent.network.layer", "transport")
            && has(&point.attributes, "network.transport", transport)
    });
    points.map(|point| point.count).sum()
}

/// Returns the losses that the sidecar counted, by reason.
pub fn lost(of: &ResourceMetrics) -> Vec<(String, f64)> {
    let points = metrics(of, LOST).flat_map(sums);
    let counts =
        points.filter_map(|point| Some((attribute(&point.attributes, "undercurrent.reason")?, number(point)?)));
    counts.filter(|(_, count)| *count > 0.0).collect()
}

/// True if the resource has points and each of them marks the end of its series.
pub fn is_over(of: &ResourceMetrics) -> bool {
    points(of).count() > 0 && points(of).all(Point::is_end)
}

fn points(of: &ResourceMetrics) -> impl Iterator<Item = &dyn Point> {
    otlp::metrics(of).flat_map(otlp::points)
}

fn metrics<'a>(of: &'a ResourceMetrics, name: &'static str) -> impl Iterator<Item = &'a Metric> {
    otlp::metrics(of).filter(move |metric| metric.name == name)
}
