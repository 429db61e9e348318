//! What the sidecar's lines add up to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Context as _;

use xtask_e2e::collector::otlp::{Attributes, Metric, Request};

/// What all lines said so far.
#[derive(Default)]
pub struct Lines {
    /// The time of the snapshot that is being told.
    time: u64,
    /// Snapshots that were told to their end.
    pub snapshots: u64,
    telling: BTreeSet<String>,
    /// Containers that the last whole snapshot had something of.
    pub containers: BTreeSet<String>,
    /// UDP packets at `transport`, measured or lost for their stamps: the last count of every series, of containers by
    /// their ids.
    packets: HashMap<(Option<String>, Series), f64>,
    /// What could not be told apart, by reason.
    pub lost: BTreeMap<String, f64>,
    /// Whether anything was told of workloads beyond the limit.
    pub overflow: bool,
}

/// The resource's instance, the point's attributes, and its start.
type Series = (String, Attributes, u64);

impl Lines {
    /// Takes in one line.
    pub fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let request: Request = serde_json::from_str(line).context("a line is no OTLP/JSON")?;
        for (resource, metric) in request.metrics() {
            self.metric(resource, metric);
        }
        Ok(())
    }

    fn metric(&mut self, resource: &Attributes, metric: &Metric) {
        let container = resource.get("container.id");
        self.overflow |= resource.contains_key("otel.metric.overflow");
        let instance = resource.get("service.instance.id").cloned().unwrap_or_default();
        let udp = |attributes: &Attributes| {
            let is = |key: &str, value: &str| attributes.get(key).is_some_and(|found| found == value);
            is("undercurrent.network.layer", "transport") && is("network.transport", "udp")
        };
        let histograms = metric.exponential_histogram.iter().flat_map(|data| &data.data_points);
        for point in histograms {
            self.tell(point.time_unix_nano, container);
            if !point.is_end() && metric.name == "undercurrent.network.receive.duration" && udp(&point.attributes) {
                let series = (instance.clone(), point.attributes.clone(), point.start_time_unix_nano);
                self.packets.insert((container.cloned(), series), point.value.count as f64);
            }
        }
        for point in metric.sum.iter().flat_map(|data| &data.data_points) {
            self.tell(point.time_unix_nano, container);
            let (Some(value), "undercurrent.lost") = (point.value.get(), metric.name.as_str()) else { continue };
            let attribute = |key: &str| point.attributes.get(key).map(String::as_str);
            let reason = attribute("undercurrent.reason").unwrap_or_default();
            if attribute("undercurrent.signal") == Some("workloads") {
                self.lost.insert(reason.to_owned(), value);
            } else if udp(&point.attributes) && reason != "above_range" {
                let series = (instance.clone(), point.attributes.clone(), point.start_time_unix_nano);
                self.packets.insert((None, series), value);
            }
        }
    }

    /// A snapshot may take several lines.
    fn tell(&mut self, time: u64, container: Option<&String>) {
        if time != self.time {
            self.snapshots += u64::from(self.time != 0);
            self.time = time;
            self.containers = std::mem::take(&mut self.telling);
        }
        self.telling.extend(container.cloned());
    }

    /// UDP packets at `transport` of everybody.
    pub fn packets(&self) -> f64 {
        self.packets.values().sum()
    }

    /// The same of containers whose ids begin so.
    pub fn packets_of(&self, prefix: &str) -> f64 {
        let ours =
            |(container, _): &&(Option<String>, Series)| container.as_ref().is_some_and(|id| id.starts_with(prefix));
        self.packets.iter().filter(|(key, _)| ours(key)).map(|(_, count)| count).sum()
    }
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
    fn the_last_count_of_every_series_counts() {
        let mut lines = Lines::default();
        for line in [line(10, "aa1", 1, 4), line(20, "aa1", 1, 7), line(20, "ab2", 1, 5), line(30, "aa1", 1, 0)] {
            lines.take(&line).unwrap();
        }
        assert_eq!((lines.packets(), lines.packets_of("aa")), (12.0, 7.0));
        assert_eq!((lines.snapshots, lines.containers.len()), (2, 2));
        // The same container once more, from the beginning.
        lines.take(&line(40, "aa1", 35, 3)).unwrap();
        assert_eq!((lines.packets(), lines.packets_of("aa")), (15.0, 10.0));
        assert_eq!(lines.containers.len(), 1);
    }

    #[test]
    fn losses_are_kept_by_reason() {
        let lost = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"undercurrent.lost","sum":{"dataPoints":[{"attributes":[{"key":"undercurrent.signal","value":{"stringValue":"workloads"}},{"key":"undercurrent.reason","value":{"stringValue":"no_owner"}}],"timeUnixNano":"7","asInt":"42"}]}}]}]}]}"#;
        let mut lines = Lines::default();
        lines.take(lost).unwrap();
        assert_eq!(lines.lost, BTreeMap::from([("no_owner".to_owned(), 42.0)]));
    }
}
