//! OTLP/JSON metrics as the collector's file exporter writes them, parsed into the messages of `opentelemetry-proto`.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{
        DataPointFlags, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
        metric::Data, number_data_point::Value,
    },
    trace::v1::Span,
};

/// Attributes by key. Values are formatted as text; the elements of an array are separated by commas.
pub type Attributes = BTreeMap<String, String>;

/// One export request: a line of the file.
#[derive(Clone, Debug)]
pub struct Request {
    /// One entry for each resource.
    pub resource_metrics: Vec<ResourceMetrics>,
}

impl Request {
    /// Parses one line.
    ///
    /// # Errors
    /// If the line is not a request in OTLP/JSON, or a list of attributes contains a key twice.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        let ExportMetricsServiceRequest { resource_metrics } =
            serde_json::from_str(line).context("the line is not OTLP/JSON")?;
        let request = Self { resource_metrics };
        for (of, metric) in request.metrics() {
            let lists = points(metric).map(Point::attributes).chain([resource(of)]);
            for list in lists {
                ensure!(attributes(list).len() == list.len(), "{}: an attribute occurs twice: {list:?}", metric.name);
            }
        }
        Ok(request)
    }

    /// Parses every complete line of a file. The writer may still be writing a last line that has no newline.
    pub fn read_all(file: &Path) -> anyhow::Result<Vec<Self>> {
        read(file, Self::parse)
    }

    /// Returns the time of the first point in nanoseconds since 1970, or `None` if the request has no point.
    pub fn time(&self) -> Option<u64> {
        self.metrics().flat_map(|(_, metric)| points(metric)).next().map(Point::time)
    }

    /// Iterates over every metric with its resource.
    pub fn metrics(&self) -> impl Iterator<Item = (&ResourceMetrics, &Metric)> {
        self.resource_metrics.iter().flat_map(|of| metrics(of).map(move |metric| (of, metric)))
    }
}

/// Parses every complete line of a file.
fn read<T>(file: &Path, parse: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parsed = complete
        .lines()
        .enumerate()
        .map(|(index, line)| parse(line).with_context(|| format!("line {} of {}", index + 1, file.display())));
    parsed.collect()
}

/// Returns the spans in every complete line of a file.
pub fn read_spans(file: &Path) -> anyhow::Result<Vec<Span>> {
    let parse = |line: &str| serde_json::from_str(line).context("the line is not OTLP/JSON");
    let requests: Vec<ExportTraceServiceRequest> = read(file, parse)?;
    let scopes = requests.into_iter().flat_map(|request| request.resource_spans).flat_map(|of| of.scope_spans);
    Ok(scopes.flat_map(|scope| scope.spans).collect())
}

/// A data point of any kind.
pub trait Point {
    /// The attributes that identify the series of the point.
    fn attributes(&self) -> &[KeyValue];
    /// Start of the cumulative value in nanoseconds since 1970; 0 if the point has no start.
    fn start(&self) -> u64;
    /// Time of the measurement in nanoseconds since 1970.
    fn time(&self) -> u64;
    /// True if the point marks the end of its series and therefore has no value.
    fn is_end(&self) -> bool;
}

macro_rules! impl_point {
    ($($kind:ty),*) => {$(
        impl Point for $kind {
            fn attributes(&self) -> &[KeyValue] {
                &self.attributes
            }

            fn start(&self) -> u64 {
                self.start_time_unix_nano
            }

            fn time(&self) -> u64 {
                self.time_unix_nano
            }

            fn is_end(&self) -> bool {
                self.flags & DataPointFlags::NoRecordedValueMask as u32 != 0
            }
        }
    )*};
}

impl_point!(NumberDataPoint, ExponentialHistogramDataPoint, HistogramDataPoint);

/// Returns the attributes of a resource.
pub fn resource(of: &ResourceMetrics) -> &[KeyValue] {
    of.resource.as_ref().map_or(&[], |resource| &resource.attributes)
}

/// Iterates over the metrics of a resource.
pub fn metrics(of: &ResourceMetrics) -> impl Iterator<Item = &Metric> {
    of.scope_metrics.iter().flat_map(|scope| &scope.metrics)
}

/// Returns the points of a sum; empty for other kinds of metrics.
pub fn sums(metric: &Metric) -> &[NumberDataPoint] {
    if let Some(Data::Sum(sum)) = &metric.data { &sum.data_points } else { &[] }
}

/// Returns the points of an exponential histogram; empty for other kinds of metrics.
pub fn histograms(metric: &Metric) -> &[ExponentialHistogramDataPoint] {
    if let Some(Data::ExponentialHistogram(histogram)) = &metric.data { &histogram.data_points } else { &[] }
}

/// Iterates over the points of a metric. The sidecar sends sums, gauges and exponential histograms only.
pub fn points(metric: &Metric) -> impl Iterator<Item = &dyn Point> {
    let numbers = if let Some(Data::Gauge(gauge)) = &metric.data { &gauge.data_points } else { sums(metric) };
    let numbers = numbers.iter().map(|point| point as &dyn Point);
    numbers.chain(histograms(metric).iter().map(|point| point as &dyn Point))
}

/// Returns the value of a point, or `None` if the point has no value.
pub fn number(point: &NumberDataPoint) -> Option<f64> {
    match point.value.as_ref()? {
        Value::AsDouble(value) => Some(*value),
        Value::AsInt(value) => Some(*value as f64),
    }
}

/// Returns the value of an attribute as text.
pub fn attribute(list: &[KeyValue], key: &str) -> Option<String> {
    list.iter().find(|attribute| attribute.key == key).map(|attribute| text(attribute.value.as_ref()))
}

/// True if an attribute has this value.
pub fn has(list: &[KeyValue], key: &str, value: &str) -> bool {
    attribute(list, key).is_some_and(|found| found == value)
}

/// Returns a list of attributes as a map.
pub fn attributes(list: &[KeyValue]) -> Attributes {
    list.iter().map(|attribute| (attribute.key.clone(), text(attribute.value.as_ref()))).collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::ArrayValue(array)) => {
            array.values.iter().map(|value| text(Some(value))).collect::<Vec<_>>().join(",")
        }
        Some(other) => serde_json::to_string(other).unwrap_or_default(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"cpu","value":{"intValue":"3"}}]},"scopeMetrics":[{"metrics":[{"name":"n","sum":{"dataPoints":[{"timeUnixNano":"7","asInt":"42"}],"aggregationTemporality":2}}]}]}]}"#;

    fn read(text: &str) -> anyhow::Result<Vec<Request>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        Request::read_all(file.path())
    }

    #[test]
    fn numbers_in_strings_are_parsed() {
        let requests = read(&format!("{LINE}\n")).unwrap();
        let (of, metric) = requests[0].metrics().next().unwrap();
        assert_eq!(attributes(resource(of))["cpu"], "3");
        assert_eq!((sums(metric)[0].time(), number(&sums(metric)[0])), (7, Some(42.0)));
        assert_eq!(requests[0].time(), Some(7));
    }

    #[test]
    fn histograms_are_parsed() {
        let histogram = r#""exponentialHistogram":{"dataPoints":[{"timeUnixNano":"7","count":"6","sum":1.5,"scale":2,"zeroCount":"1","positive":{"offset":-40,"bucketCounts":["2","3"]},"flags":1}]}}"#;
        let (start, _) = LINE.split_once(r#""sum""#).unwrap();
        let request = Request::parse(&format!("{start}{histogram}]}}]}}]}}")).unwrap();
        let (_, metric) = request.metrics().next().unwrap();
        let point = &histograms(metric)[0];
        assert_eq!((point.count, point.zero_count, point.scale, point.is_end()), (6, 1, 2, true));
        assert_eq!(point.positive.as_ref().unwrap().bucket_counts, [2, 3]);
    }

    #[test]
    fn elements_of_an_array_are_joined() {
        let array = r#"{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":"b"}]}}"#;
        let request = Request::parse(&LINE.replace(r#"{"intValue":"3"}"#, array)).unwrap();
        assert_eq!(attribute(resource(&request.resource_metrics[0]), "cpu").as_deref(), Some("a,b"));
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        assert_eq!(read(&format!("{LINE}\n{}", &LINE[..40])).unwrap().len(), 1);
        assert_eq!(read(&LINE[..40]).unwrap().len(), 0);
    }

    #[test]
    fn an_error_names_the_line() {
        let error = read(&format!("{LINE}\nnonsense\n")).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of "), "{error}");
    }

    #[test]
    fn a_repeated_attribute_is_an_error() {
        let once = r#"{"key":"cpu","value":{"intValue":"3"}}"#;
        let error = read(&format!("{}\n", LINE.replace(once, &format!("{once},{once}")))).unwrap_err();
        assert!(format!("{error:#}").contains("occurs twice"), "{error:#}");
    }
}
