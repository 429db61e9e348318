//! Parses the sidecar's OTLP/JSON lines with the published types of OpenTelemetry.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint,
        metric::Data, number_data_point,
    },
};
use undercurrent::{signals::catalogue, telemetry::Descriptor};

/// `FLAG_NO_RECORDED_VALUE` of the protocol.
const NO_RECORDED_VALUE: u32 = 1;

/// Attributes as text.
pub type Attributes = BTreeMap<String, String>;

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A monotonic sum.
    Counter(f64),
    /// Any other number.
    Number(f64),
    /// A histogram.
    Histogram(Box<ExponentialHistogramDataPoint>),
    /// A histogram with fixed bounds.
    Explicit(Box<HistogramDataPoint>),
    /// The end of the series, without a value.
    Over,
}

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The attributes of the resource.
    pub resource: Attributes,
    pub metric: String,
    pub attributes: Attributes,
    pub start: u64,
    pub value: Value,
}

/// A line, which is one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The time of all points, nanoseconds of the wall clock.
    pub time: u64,
    pub points: Vec<Point>,
}

impl Line {
    /// Parses the complete lines of an output. Packets of other processes may have spans, whose lines are left out.
    pub fn all(output: &str) -> Vec<Self> {
        output.lines().filter(|line| !has_spans(line)).map(Self::parse).collect()
    }

    /// Parses a line. It must be one valid request, and all of its points must have one time.
    pub fn parse(line: &str) -> Self {
        let request: ExportMetricsServiceRequest =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("no OTLP/JSON request: {error}: {line}"));
        let (mut times, mut points) = (BTreeSet::new(), Vec::new());
        for of in request.resource_metrics {
            let resource = text(of.resource.unwrap_or_default().attributes);
            for (time, point) in of.scope_metrics.into_iter().flat_map(|scope| scope.metrics).flat_map(points_of) {
                times.insert(time);
                points.push(Point { resource: resource.clone(), ..point });
            }
        }
        assert_eq!(times.len(), 1, "one timestamp a line: {line}");
        points.iter().for_each(assert_documented);
        Self { time: times.into_iter().next().unwrap(), points }
    }

    /// Returns the points of a metric that have at least these attributes.
    pub fn find<'a>(&'a self, metric: &'a str, attributes: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Point> {
        let has = |point: &Point, (key, value): &(&str, &str)| point.attributes.get(*key).is_some_and(|v| v == value);
        self.points.iter().filter(move |point| point.metric == metric && attributes.iter().all(|of| has(point, of)))
    }

    /// Returns the sum of counters, or of histograms' counts, over all resources; zero without a matching point.
    pub fn total(&self, metric: &str, attributes: &[(&str, &str)]) -> f64 {
        self.find(metric, attributes).map(Point::amount).sum()
    }
}

impl Point {
    /// Returns the value of a counter or the count of a histogram.
    pub fn amount(&self) -> f64 {
        match &self.value {
            Value::Counter(number) | Value::Number(number) => *number,
            Value::Histogram(histogram) => histogram.count as f64,
            Value::Explicit(histogram) => histogram.count as f64,
            Value::Over => 0.0,
        }
    }
}

/// Returns true if a line has spans instead of metrics.
pub fn has_spans(line: &str) -> bool {
    line.starts_with(r#"{"resourceSpans""#)
}

/// Panics unless the catalogue, which is the source of the docs, contains the point's metric and every attribute
/// with its value.
fn assert_documented(point: &Point) {
    static CATALOGUE: LazyLock<BTreeMap<&str, &Descriptor>> =
        LazyLock::new(|| catalogue().map(|(_, metric)| (metric.name, metric)).collect());
    let metric = CATALOGUE.get(&*point.metric).unwrap_or_else(|| panic!("{} is in no document", point.metric));
    for (key, value) in &point.attributes {
        let documented = metric.attributes.iter().find(|attribute| attribute.key == key);
        assert!(documented.is_some_and(|attribute| attribute.admits(value)), "{} has {key}={value}", point.metric);
    }
}

fn points_of(metric: Metric) -> Vec<(u64, Point)> {
    let name = metric.name;
    let point = |attributes, flags: u32, start, value: &dyn Fn() -> Value| Point {
        resource: Attributes::new(),
        metric: name.clone(),
        attributes: text(attributes),
        start,
        value: if flags & NO_RECORDED_VALUE == 0 { value() } else { Value::Over },
    };
    let cumulative = AggregationTemporality::Cumulative as i32;
    match metric.data.unwrap_or_else(|| panic!("{name} has no data")) {
        Data::Gauge(gauge) => {
            let of = |n: NumberDataPoint| {
                let value = || Value::Number(number(n.value));
                (n.time_unix_nano, point(n.attributes, n.flags, n.start_time_unix_nano, &value))
            };
            gauge.data_points.into_iter().map(of).collect()
        }
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality, cumulative, "{name}");
            let value = if sum.is_monotonic { Value::Counter } else { Value::Number };
            let of = |n: NumberDataPoint| {
                let value = || value(number(n.value));
                (n.time_unix_nano, point(n.attributes, n.flags, n.start_time_unix_nano, &value))
            };
            sum.data_points.into_iter().map(of).collect()
        }
        Data::ExponentialHistogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, cumulative, "{name}");
            let of = |mut h: ExponentialHistogramDataPoint| {
                let attributes = std::mem::take(&mut h.attributes);
                let (time, start, flags) = (h.time_unix_nano, h.start_time_unix_nano, h.flags);
                (time, point(attributes, flags, start, &|| Value::Histogram(Box::new(h.clone()))))
            };
            histogram.data_points.into_iter().map(of).collect()
        }
        Data::Histogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, cumulative, "{name}");
            let of = |mut h: HistogramDataPoint| {
                let attributes = std::mem::take(&mut h.attributes);
                let (time, start, flags) = (h.time_unix_nano, h.start_time_unix_nano, h.flags);
                (time, point(attributes, flags, start, &|| Value::Explicit(Box::new(h.clone()))))
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

pub fn text(attributes: Vec<KeyValue>) -> Attributes {
    let value = |value: any_value::Value| match value {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::BoolValue(truth) => truth.to_string(),
        any_value::Value::ArrayValue(several) => format!("{:?}", several.values),
        other => panic!("an attribute of another kind: {other:?}"),
    };
    let pair = |attribute: KeyValue| (attribute.key, value(attribute.value.unwrap().value.unwrap()));
    attributes.into_iter().map(pair).collect()
}
