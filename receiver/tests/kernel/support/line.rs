//! A line of the sidecar's OTLP/JSON output, read with the types that OpenTelemetry publishes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, DataPointFlags, ExponentialHistogramDataPoint, Metric, NumberDataPoint, metric::Data,
        number_data_point,
    },
};

/// Attributes as text.
pub type Attributes = BTreeMap<String, String>;

/// What a point says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A sum that never falls.
    Counter(f64),
    /// Any other number.
    Number(f64),
    /// A histogram.
    Histogram(Box<ExponentialHistogramDataPoint>),
    /// Nothing: the series is over.
    Over,
}

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub resource: Arc<Attributes>,
    pub metric: String,
    pub attributes: Attributes,
    pub start: u64,
    pub value: Value,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Every point's time, nanoseconds of the wall clock.
    pub time: u64,
    pub points: Vec<Point>,
}

impl Line {
    /// Reads a line, which must be one valid request whose points are all of one time.
    pub fn parse(text: &str) -> Self {
        let request: ExportMetricsServiceRequest =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("no OTLP/JSON request: {error}: {text}"));
        let (mut times, mut points) = (BTreeSet::new(), Vec::new());
        for of_resource in request.resource_metrics {
            let resource = Arc::new(attributes(of_resource.resource.unwrap_or_default().attributes));
            for metric in of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                for (time, point) in points_of(metric, &resource) {
                    times.insert(time);
                    points.push(point);
                }
            }
        }
        assert_eq!(times.len(), 1, "one timestamp a line: {text}");
        Self { time: times.into_iter().next().unwrap(), points }
    }

    /// The points of a metric that have these attributes, among others.
    pub fn find<'a>(&'a self, metric: &'a str, attributes: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Point> {
        let has = |point: &Point, (key, value): &(&str, &str)| point.attributes.get(*key).is_some_and(|v| v == value);
        self.points.iter().filter(move |point| point.metric == metric && attributes.iter().all(|of| has(point, of)))
    }

    /// The sum of counters, or of histograms' counts; zero where there is no such point.
    pub fn total(&self, metric: &str, attributes: &[(&str, &str)]) -> f64 {
        let number = |point: &Point| match &point.value {
            Value::Counter(number) | Value::Number(number) => *number,
            Value::Histogram(histogram) => histogram.count as f64,
            Value::Over => 0.0,
        };
        self.find(metric, attributes).map(number).sum()
    }
}

fn points_of(metric: Metric, resource: &Arc<Attributes>) -> Vec<(u64, Point)> {
    let name = metric.name;
    let point = |of, start, value| {
        let (resource, metric) = (Arc::clone(resource), name.clone());
        Point { resource, metric, attributes: attributes(of), start, value }
    };
    let over = |flags: u32| flags & DataPointFlags::NoRecordedValueMask as u32 != 0;
    let numbers = |points: Vec<NumberDataPoint>, value: fn(f64) -> Value| {
        let of = |n: NumberDataPoint| {
            let value = if over(n.flags) { Value::Over } else { value(number(n.value.unwrap())) };
            (n.time_unix_nano, point(n.attributes, n.start_time_unix_nano, value))
        };
        points.into_iter().map(of).collect()
    };
    let cumulative = AggregationTemporality::Cumulative as i32;
    match metric.data.unwrap_or_else(|| panic!("{name} has no data")) {
        Data::Gauge(gauge) => numbers(gauge.data_points, Value::Number),
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality, cumulative, "{name}");
            numbers(sum.data_points, if sum.is_monotonic { Value::Counter } else { Value::Number })
        }
        Data::ExponentialHistogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, cumulative, "{name}");
            let of = |mut h: ExponentialHistogramDataPoint| {
                let attributes = std::mem::take(&mut h.attributes);
                let (time, start) = (h.time_unix_nano, h.start_time_unix_nano);
                (
                    time,
                    point(attributes, start, if over(h.flags) { Value::Over } else { Value::Histogram(Box::new(h)) }),
                )
            };
            histogram.data_points.into_iter().map(of).collect()
        }
        other => panic!("{name} is none of the kinds that the sidecar has: {other:?}"),
    }
}

fn number(value: number_data_point::Value) -> f64 {
    match value {
        number_data_point::Value::AsDouble(value) => value,
        number_data_point::Value::AsInt(value) => value as f64,
    }
}

fn attributes(of: Vec<KeyValue>) -> Attributes {
    of.into_iter().map(|attribute| (attribute.key, text(attribute.value.unwrap().value.unwrap()))).collect()
}

fn text(value: any_value::Value) -> String {
    match value {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::BoolValue(truth) => truth.to_string(),
        any_value::Value::ArrayValue(list) => {
            let texts: Vec<_> = list.values.into_iter().map(|value| text(value.value.unwrap())).collect();
            texts.join(",")
        }
        other => panic!("an attribute of another kind: {other:?}"),
    }
}
