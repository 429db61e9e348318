//! What the sidecar's requests say of one container.

use anyhow::{Context as _, ensure};

use super::{
    containers::{Container, IMAGE, TAG},
    peer::Report,
};
use xtask_e2e::collector::otlp::{Attributes, Metric, Point, Request, ResourceMetrics};

const LATENCY: &str = "undercurrent.network.receive.duration";
const CPU_TIME: &str = "undercurrent.cpu.time";
const LOST: &str = "undercurrent.lost";

/// A resource's figures at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// Since when they count.
    pub start: u64,
    /// Its `service.instance.id`.
    pub instance: String,
    /// What arrived at `transport`.
    pub received: Report,
}

/// A container that has ended.
pub struct Ended {
    /// Which one.
    pub container: Container,
    /// What it received.
    pub report: Report,
    /// Whether it ended too early for everybody to learn its name.
    pub nameless: bool,
}

impl Ended {
    /// Its last figures are those of its own namespace, under its own names, and then it was over. Yields them, and
    /// whether the names are known.
    pub fn check(&self, requests: &[Request]) -> anyhow::Result<(Totals, bool)> {
        let Self { container, report, .. } = self;
        let of = || format!("of the container {} ({})", container.name, container.id);
        let found = last(requests, &container.id)?.with_context(|| format!("there are no figures {}", of()))?;
        // A segment that is sent again at the end of its connection finds no socket any more.
        let tcp = report.tcp.saturating_sub(1)..=report.tcp;
        let agree = found.received.udp == report.udp && tcp.contains(&found.received.tcp);
        ensure!(agree, "{report:?} arrived, the sidecar says {:?} {}", found.received, of());
        let mut said = requests.iter().filter_map(|request| resource(request, &container.id).ok()?);
        ensure!(said.next_back().is_some_and(is_over), "nothing says the end {}", of());
        Ok((found, self.check_names(requests)?))
    }

    /// Whatever is said of it is true, and in the end all is said; whether it is.
    fn check_names(&self, requests: &[Request]) -> anyhow::Result<bool> {
        let Container { id, name, runtime, .. } = &self.container;
        for of in requests.iter().filter_map(|request| resource(request, id).ok()?) {
            let said = of.resource.attributes.get("container.runtime.name");
            ensure!(
                said.is_some_and(|said| said == runtime),
                "the container {id} is said to be of {said:?}, not {runtime}"
            );
        }
        let mut named = 0;
        for (key, value) in
            [("container.name", name.as_str()), ("container.image.name", IMAGE), ("container.image.tags", TAG)]
        {
            let mut said = None;
            for request in requests {
                said = resource(request, id)?.map(|of| of.resource.attributes.get(key)).or(said);
                let wrong = said.flatten().filter(|said| *said != value);
                ensure!(wrong.is_none(), "{key} of the container {id} is {wrong:?}, not {value}");
            }
            named += usize::from(said.flatten().is_some());
        }
        ensure!(
            named == 3 || (named == 0 && self.nameless),
            "of the container {name} only {named} of 3 names are known"
        );
        Ok(named == 3)
    }
}

/// The resource of a container in a request; an error where there are several.
pub fn resource<'a>(request: &'a Request, id: &str) -> anyhow::Result<Option<&'a ResourceMetrics>> {
    let mut of_id = request.resource_metrics.iter().filter(|of| is(&of.resource.attributes, "container.id", id));
    let first = of_id.next();
    ensure!(of_id.next().is_none(), "one request has several resources of the container {id}");
    Ok(first)
}

/// The node's.
pub fn of_node(request: &Request) -> Option<&ResourceMetrics> {
    request.resource_metrics.iter().find(|of| is(&of.resource.attributes, "service.name", "undercurrent"))
}

/// The last figures of a container.
pub fn last(requests: &[Request], id: &str) -> anyhow::Result<Option<Totals>> {
    for request in requests.iter().rev() {
        if let Some(totals) = resource(request, id)?.and_then(totals) {
            return Ok(Some(totals));
        }
    }
    Ok(None)
}

/// A resource's figures; `None` once they are over.
pub fn totals(of: &ResourceMetrics) -> Option<Totals> {
    let start = heads(of).find(|point| !point.is_end())?.start_time_unix_nano;
    let instance = of.resource.attributes.get("service.instance.id")?.clone();
    Some(Totals { start, instance, received: Report { udp: received(of, "udp"), tcp: received(of, "tcp") } })
}

/// Seconds of CPU time; `None` where there is no figure.
pub fn cpu_time(of: &ResourceMetrics) -> Option<f64> {
    let sums = metrics(of, CPU_TIME).filter_map(|metric| metric.sum.as_ref());
    let values: Vec<_> = sums.flat_map(|sum| &sum.data_points).filter_map(|point| point.value.get()).collect();
    if values.is_empty() { None } else { Some(values.iter().sum()) }
}

/// How many packets of a transport protocol were timed at the `transport` layer.
pub fn received(of: &ResourceMetrics, transport: &str) -> u64 {
    let data = metrics(of, LATENCY).filter_map(|metric| metric.exponential_histogram.as_ref());
    let points = data.flat_map(|data| &data.data_points).filter(|point| {
        is(&point.attributes, "undercurrent.network.layer", "transport")
            && is(&point.attributes, "network.transport", transport)
    });
    points.map(|point| point.value.count).sum()
}

/// What could not be measured, or whose it was not told, by reason.
pub fn lost(of: &ResourceMetrics) -> Vec<(&str, f64)> {
    let points = metrics(of, LOST).filter_map(|metric| metric.sum.as_ref()).flat_map(|sum| &sum.data_points);
    let counts =
        points.filter_map(|point| Some((point.attributes.get("undercurrent.reason")?.as_str(), point.value.get()?)));
    counts.filter(|(_, count)| *count > 0.0).collect()
}

/// Whether a resource is over: every point of it, and there are some.
pub fn is_over(of: &ResourceMetrics) -> bool {
    heads(of).count() > 0 && heads(of).all(|point| point.is_end())
}

fn heads(of: &ResourceMetrics) -> impl Iterator<Item = Point<()>> {
    of.scope_metrics.iter().flat_map(|scope| &scope.metrics).flat_map(Metric::heads)
}

fn metrics<'a>(of: &'a ResourceMetrics, name: &'static str) -> impl Iterator<Item = &'a Metric> {
    of.scope_metrics.iter().flat_map(|scope| &scope.metrics).filter(move |metric| metric.name == name)
}

fn is(attributes: &Attributes, key: &str, value: &str) -> bool {
    attributes.get(key).is_some_and(|found| found == value)
}
