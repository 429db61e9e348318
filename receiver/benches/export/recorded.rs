//! Snapshots of a node with many workloads, after the recorded telemetry of one busy container (`recorded.jsonl`). Each workload has the
//! recorded series with other counts.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value::Value as Wire},
    metrics::v1::{self as proto, ExponentialHistogramDataPoint, NumberDataPoint, number_data_point},
};
use undercurrent::{
    signals::catalogue,
    telemetry::{
        Attributes, Data, Descriptor, ExponentialHistogram, Metric, Point, Resource, ResourceMetrics, Snapshot,
        UnixNanos, Value,
    },
};

/// Requests of the sidecar: the node's resource, and that of a container.
const RECORDED: &str = include_str!("recorded.jsonl");

/// A node, whose counts grow with each snapshot.
pub struct Node {
    resources: Vec<ResourceMetrics>,
}

impl Node {
    /// Creates a node with a number of workloads.
    ///
    /// # Errors
    /// If the recorded telemetry is invalid, or contains an unknown metric.
    pub fn new(workloads: u32) -> anyhow::Result<Self> {
        let (mut node, mut container) = (None, None);
        for line in RECORDED.lines() {
            let request: ExportMetricsServiceRequest = serde_json::from_str(line)?;
            for recorded in request.resource_metrics {
                let recorded = resource_metrics(recorded)?;
                let is_container = recorded.resource.attributes.get("container.id").is_some();
                *(if is_container { &mut container } else { &mut node }) = Some(recorded);
            }
        }
        let (node, container) = (node.context("no resource of the node")?, container.context("no container")?);
        let resources = std::iter::once(node).chain((0..workloads).map(|number| copy(&container, number))).collect();
        Ok(Self { resources })
    }

    /// Returns the next snapshot.
    pub fn snapshot(&mut self, time: UnixNanos) -> Snapshot {
        let points = self.resources.iter_mut().flat_map(|resource| &mut resource.metrics).flat_map(|m| &mut m.points);
        points.enumerate().for_each(|(number, point)| grow(&mut point.data, random(number as u64 ^ time.0)));
        Snapshot { time, resources: self.resources.clone() }
    }
}

/// Returns a number that looks random (SplitMix64).
const fn random(seed: u64) -> u64 {
    let mixed = (seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Returns the recorded container with other names and counts.
fn copy(recorded: &ResourceMetrics, number: u32) -> ResourceMetrics {
    let mut attributes = recorded.resource.attributes.clone();
    let id = random(number.into());
    for (key, value) in [
        ("container.id", format!("{id:016x}").repeat(4)),
        ("container.name", format!("service-{number}")),
        ("service.name", format!("service-{}", number % 100)),
        ("service.instance.id", format!("{:08x}-0000-5000-8000-{:012x}", id >> 32, id & 0xffff_ffff_ffff)),
    ] {
        attributes.set(key, value);
    }
    let mut copy = ResourceMetrics { resource: Arc::new(Resource { attributes }), metrics: recorded.metrics.clone() };
    for (index, point) in copy.metrics.iter_mut().flat_map(|metric| &mut metric.points).enumerate() {
        point.start = UnixNanos(point.start.0 + u64::from(number) * 1_000_003);
        grow(&mut point.data, random(id ^ index as u64));
    }
    copy
}

/// Adds to the counts of a point, by up to a thirty-second of them.
fn grow(data: &mut Data, random: u64) {
    match data {
        Data::Integer(number) => *number += *number * (random % 256) as i64 / 8192,
        Data::Double(number) => *number *= 1.0 + (random % 256) as f64 / 8192.0,
        Data::Histogram(histogram) => {
            for (index, bucket) in histogram.buckets.iter_mut().enumerate() {
                *bucket += *bucket * (random.rotate_left(index as u32) % 256) / 8192;
            }
            histogram.sum *= 1.0 + (random % 256) as f64 / 8192.0;
        }
        Data::NoRecordedValue => {}
    }
}

fn resource_metrics(recorded: proto::ResourceMetrics) -> anyhow::Result<ResourceMetrics> {
    let descriptors: BTreeMap<&str, &'static Descriptor> =
        catalogue().map(|(_, metric)| (metric.name, metric)).collect();
    let attributes = attributes(recorded.resource.unwrap_or_default().attributes)?;
    let mut metrics = Vec::new();
    for metric in recorded.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
        let descriptor = descriptors.get(&*metric.name).with_context(|| format!("{} is unknown", metric.name))?;
        let points = match metric.data.context("a metric without data")? {
            proto::metric::Data::Sum(sum) => sum.data_points.into_iter().map(number).collect(),
            proto::metric::Data::Gauge(gauge) => gauge.data_points.into_iter().map(number).collect(),
            proto::metric::Data::ExponentialHistogram(all) => all.data_points.into_iter().map(histogram).collect(),
            other => anyhow::bail!("{} has {other:?}", metric.name),
        };
        let points: anyhow::Result<Vec<Point>> = points;
        metrics.push(Metric { descriptor, points: points? });
    }
    Ok(ResourceMetrics { resource: Arc::new(Resource { attributes }), metrics })
}

fn number(point: NumberDataPoint) -> anyhow::Result<Point> {
    let data = match point.value.context("a point without a value")? {
        number_data_point::Value::AsInt(number) => Data::Integer(number),
        number_data_point::Value::AsDouble(number) => Data::Double(number),
    };
    Ok(Point { attributes: attributes(point.attributes)?, start: UnixNanos(point.start_time_unix_nano), data })
}

fn histogram(point: ExponentialHistogramDataPoint) -> anyhow::Result<Point> {
    let buckets = point.positive.unwrap_or_default();
    let data = Data::Histogram(ExponentialHistogram {
        scale: point.scale,
        zero_count: point.zero_count,
        zero_threshold: point.zero_threshold,
        offset: buckets.offset,
        buckets: buckets.bucket_counts,
        sum: point.sum.unwrap_or_default(),
        exemplars: Vec::new(),
    });
    Ok(Point { attributes: attributes(point.attributes)?, start: UnixNanos(point.start_time_unix_nano), data })
}

fn attributes(recorded: Vec<KeyValue>) -> anyhow::Result<Attributes> {
    recorded.into_iter().try_fold(Attributes::new(), |attributes, KeyValue { key, value, .. }| {
        let value = match value.and_then(|value| value.value).context("an attribute without a value")? {
            Wire::StringValue(text) => Value::from(text),
            Wire::IntValue(number) => Value::from(number),
            Wire::BoolValue(flag) => Value::from(flag),
            Wire::ArrayValue(list) => Value::from(texts(list.values)),
            other => anyhow::bail!("an attribute has {other:?}"),
        };
        Ok(attributes.with(key, value))
    })
}

fn texts(values: Vec<opentelemetry_proto::tonic::common::v1::AnyValue>) -> Vec<String> {
    let text = |value| if let Some(Wire::StringValue(text)) = value { Some(text) } else { None };
    values.into_iter().filter_map(|value| text(value.value)).collect()
}
