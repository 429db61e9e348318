//! The sum of the sidecar's JSON lines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    metrics::v1::{Metric, ResourceMetrics},
};
use xtask_e2e::collector::otlp::{
    Attributes, Point, Request, attribute, attributes, has, histograms, number, points, resource, sums,
};

/// The state after all lines so far.
#[derive(Default)]
pub struct Lines {
    /// Timestamp of the current snapshot in nanoseconds since 1970.
    time: u64,
    /// Number of complete snapshots.
    pub snapshots: u64,
    /// Containers in the current snapshot.
    current: BTreeSet<String>,
    /// Containers in the last complete snapshot.
    pub containers: BTreeSet<String>,
    /// UDP packets at the layer `transport`, measured or lost for lack of a timestamp: the last count of every series, by
    /// container id.
    packets: HashMap<(Option<String>, Series), f64>,
    /// Measurements without attribution, by reason.
    pub lost: BTreeMap<String, f64>,
    /// True if there were more workloads than the limit allows.
    pub overflow: bool,
}

/// The resource's instance, the point's attributes, and the point's start.
type Series = (String, Attributes, u64);

impl Lines {
    /// Adds one line.
    pub fn add(&mut self, line: &str) -> anyhow::Result<()> {
        for (of, metric) in Request::parse(line)?.metrics() {
            self.metric(of, metric);
        }
        Ok(())
    }

    fn metric(&mut self, of: &ResourceMetrics, metric: &Metric) {
        let container = attribute(resource(of), "container.id");
        self.overflow |= attribute(resource(of), "otel.metric.overflow").is_some();
        let instance = attribute(resource(of), "service.instance.id").unwrap_or_default();
        let series = |point: &dyn Point| (instance.clone(), attributes(point.attributes()), point.start());
        points(metric).for_each(|point| self.visit(point.time(), container.as_ref()));
        if metric.name == "undercurrent.network.receive.duration" {
            for point in histograms(metric).iter().filter(|point| !point.is_end() && is_udp(&point.attributes)) {
                self.packets.insert((container.clone(), series(point)), point.count as f64);
            }
        }
        for point in sums(metric).iter().filter(|_| metric.name == "undercurrent.lost") {
            let Some(value) = number(point) else { continue };
            let reason = attribute(&point.attributes, "undercurrent.reason").unwrap_or_default();
            if has(&point.attributes, "undercurrent.signal", "workloads") {
                self.lost.insert(reason, value);
            } else if is_udp(&point.attributes) && reason != "above_range" {
                self.packets.insert((None, series(point)), value);
            }
        }
    }

    /// Records one point. A snapshot may have several lines; all its points have one timestamp.
    fn visit(&mut self, time: u64, container: Option<&String>) {
        if time != self.time {
            self.snapshots += u64::from(self.time != 0);
            self.time = time;
            self.containers = std::mem::take(&mut self.current);
        }
        self.current.extend(container.cloned());
    }

    /// Returns the number of UDP packets at the layer `transport`, over all workloads.
    pub fn packets(&self) -> f64 {
        self.packets.values().sum()
    }

    /// Returns the number of UDP packets at the layer `transport` of containers with this prefix of the id.
    pub fn packets_of(&self, prefix: &str) -> f64 {
        let ours =
            |(container, _): &&(Option<String>, Series)| container.as_ref().is_some_and(|id| id.starts_with(prefix));
        self.packets.iter().filter(|(key, _)| ours(key)).map(|(_, count)| count).sum()
    }
}

fn is_udp(attributes: &[KeyValue]) -> bool {
    has(attributes, "undercurrent.network.layer", "transport") && has(attributes, "network.transport", "udp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: u64, container: &str, start: u64, count: u64) -> String {
        format!(
            r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"container.id","value":{{"stringValue":"{container}"}}}},{{"key":"service.instance.id","value":{{"stringValue":"{container}"}}}}]}},"scopeMetrics":[{{"metrics":[{{"name":"undercurrent.network.receive.duration","exponentialHistogram":{{"dataPoints":[{{"attributes":[{{"key":"undercurrent.network.layer","value":{{"stringValue":"transport"}}}},{{"key":"network.transport","value":{{"stringValue":"udp"}}}}],"startTimeUnixNano":"{start}","timeUnixNano":"{time}","count":"{count}","flags":{}}}],"aggregationTemporality":2}}}}]}}]}}]}}"#,
            u64::from(count == 0)
        )
    }

    #[test]
    fn packets_are_the_sum_of_the_last_counts() {
        let mut lines = Lines::default();
        for line in [line(10, "aa1", 1, 4), line(20, "aa1", 1, 7), line(20, "ab2", 1, 5), line(30, "aa1", 1, 0)] {
            lines.add(&line).unwrap();
        }
        assert_eq!((lines.packets(), lines.packets_of("aa")), (12.0, 7.0));
        assert_eq!((lines.snapshots, lines.containers.len()), (2, 2));
        // The container was started again.
        lines.add(&line(40, "aa1", 35, 3)).unwrap();
        assert_eq!((lines.packets(), lines.packets_of("aa")), (15.0, 10.0));
        assert_eq!(lines.containers.len(), 1);
    }

    #[test]
    fn losses_are_kept_by_reason() {
        let lost = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"undercurrent.lost","sum":{"dataPoints":[{"attributes":[{"key":"undercurrent.signal","value":{"stringValue":"workloads"}},{"key":"undercurrent.reason","value":{"stringValue":"no_owner"}}],"timeUnixNano":"7","asInt":"42"}]}}]}]}]}"#;
        let mut lines = Lines::default();
        lines.add(lost).unwrap();
        assert_eq!(lines.lost, BTreeMap::from([("no_owner".to_owned(), 42.0)]));
    }
}
