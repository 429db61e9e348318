//! A line of the sidecar's OTLP/JSON output, read with the types that OpenTelemetry publishes.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, ExponentialHistogramDataPoint, Metric, NumberDataPoint, metric::Data, number_data_point,
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
}

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
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
        let metrics = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        let (mut times, mut points) = (BTreeSet::new(), Vec::new());
        for metric in metrics.flat_map(|scope| scope.metrics) {
            for (time, point) in points_of(metric) {
                times.insert(time);
                points.push(point);
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
        };
        self.find(metric, attributes).map(number).sum()
    }
}

fn points_of(metric: Metric) -> Vec<(u64, Point)> {
    let name = metric.name;
    let point = |attributes, start, value| Point { metric: name.clone(), attributes: text(attributes), start, value };
    let cumulative = AggregationTemporality::Cumulative as i32;
    match metric.data.unwrap_or_else(|| panic!("{name} has no data")) {
        Data::Gauge(gauge) => {
            let of = |n: NumberDataPoint| {
                (n.time_unix_nano, point(n.attributes, n.start_time_unix_nano, Value::Number(number(n.value))))
            };
            gauge.data_points.into_iter().map(of).collect()
        }
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality, cumulative, "{name}");
            let value = if sum.is_monotonic { Value::Counter } else { Value::Number };
            let of = |n: NumberDataPoint| {
                (n.time_unix_nano, point(n.attributes, n.start_time_unix_nano, value(number(n.value))))
            };
            sum.data_points.into_iter().map(of).collect()
        }
        Data::ExponentialHistogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, cumulative, "{name}");
            let of = |mut h: ExponentialHistogramDataPoint| {
                let attributes = std::mem::take(&mut h.attributes);
                (h.time_unix_nano, point(attributes, h.start_time_unix_nano, Value::Histogram(Box::new(h))))
            };
            histogram.data_points.into_iter().map(of).collect()
        }
        other => panic!("{name} is none of the kinds that the sidecar has: {other:?}"),
    }
}

fn number(value: Option<number_data_point::Value>) -> f64 {
    match value.unwrap() {
        number_data_point::Value::AsDouble(value) => value,
        number_data_point::Value::AsInt(value) => value as f64,
    }
}

fn text(attributes: Vec<KeyValue>) -> Attributes {
    let value = |value: any_value::Value| match value {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => panic!("an attribute of another kind: {other:?}"),
    };
    let pair = |attribute: KeyValue| (attribute.key, value(attribute.value.unwrap().value.unwrap()));
    attributes.into_iter().map(pair).collect()
}
