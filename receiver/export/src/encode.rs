//! Converts telemetry to OTLP messages.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, DataPointFlags, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge,
        Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar,
        exponential_histogram_data_point::Buckets, metric, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message;

use crate::{
    form::{Form, Histograms},
    telemetry::{self, Attributes, Data, Descriptor, Instrument, SCHEMA_URL, SCOPE, UnixNanos, Value},
};

/// The flags of the last point of a series, which has no value.
const NO_RECORDED_VALUE: u32 = DataPointFlags::NoRecordedValueMask as u32;

/// Bytes of the longest tag and length of a nested message. Every field number in use takes one byte, and a length
/// below 4 GiB takes five.
pub(super) const NESTED: usize = 6;

/// A point in its encoding for the wire.
pub(super) enum WirePoint {
    Number(NumberDataPoint),
    Exponential(ExponentialHistogramDataPoint),
    Explicit(HistogramDataPoint),
}

/// The series of a point, with the time that the point covers.
pub(super) struct Series<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) attributes: &'a Attributes,
    pub(super) start: UnixNanos,
    pub(super) time: UnixNanos,
}

impl WirePoint {
    /// Returns the point of a metric. Returns `None` if its data is not a number, or does not fit the instrument.
    pub(super) fn new(series: &Series<'_>, data: &Data, histograms: Histograms) -> Option<Self> {
        let instrument = series.descriptor.instrument;
        let value = match (data, instrument) {
            (Data::Histogram(histogram), of) if of.is_histogram() => {
                return Some(match histograms.of(of) {
                    Histograms::Exponential => Self::Exponential(exponential(series, histogram)),
                    Histograms::Explicit => Self::Explicit(explicit(series, histogram)),
                });
            }
            (Data::NoRecordedValue, of) if of.is_histogram() => {
                return Some(match histograms.of(of) {
                    Histograms::Exponential => Self::Exponential(exponential_end(series)),
                    Histograms::Explicit => Self::Explicit(explicit_end(series)),
                });
            }
            (Data::Histogram(_), _) => return None,
            (_, of) if of.is_histogram() => return None,
            (Data::NoRecordedValue, _) => None,
            (Data::Integer(number), _) => Some(number_data_point::Value::AsInt(*number)),
            (Data::Double(number), _) if number.is_finite() => Some(number_data_point::Value::AsDouble(*number)),
            (Data::Double(_), _) => return None,
        };
        Some(Self::Number(NumberDataPoint {
            attributes: key_values(series.attributes),
            // OTLP ignores the start time of a gauge.
            start_time_unix_nano: if instrument == Instrument::Gauge { 0 } else { series.start.0 },
            time_unix_nano: series.time.0,
            flags: if value.is_none() { NO_RECORDED_VALUE } else { 0 },
            value,
            ..Default::default()
        }))
    }

    /// Returns the encoded size in bytes, without the tag and the length that precede a nested message.
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Number(point) => point.encoded_len(),
            Self::Exponential(point) => point.encoded_len(),
            Self::Explicit(point) => point.encoded_len(),
        }
    }

    /// Appends the point to a metric with the matching data type.
    pub(super) fn push_to(self, metric: &mut Metric) {
        match (self, &mut metric.data) {
            (Self::Number(point), Some(metric::Data::Sum(sum))) => sum.data_points.push(point),
            (Self::Number(point), Some(metric::Data::Gauge(gauge))) => gauge.data_points.push(point),
            (Self::Exponential(point), Some(metric::Data::ExponentialHistogram(histogram))) => {
                histogram.data_points.push(point);
            }
            (Self::Explicit(point), Some(metric::Data::Histogram(histogram))) => histogram.data_points.push(point),
            _ => debug_assert!(false, "`{}` got a point of another kind", metric.name),
        }
    }
}

fn exponential(series: &Series<'_>, histogram: &telemetry::ExponentialHistogram) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        attributes: key_values(series.attributes),
        start_time_unix_nano: series.start.0,
        time_unix_nano: series.time.0,
        count: histogram.count(),
        sum: Some(histogram.sum),
        scale: histogram.scale,
        zero_count: histogram.zero_count,
        positive: Some(Buckets { offset: histogram.offset, bucket_counts: histogram.buckets.clone() }),
        zero_threshold: histogram.zero_threshold,
        exemplars: histogram.exemplars.iter().map(exemplar).collect(),
        ..Default::default()
    }
}

fn exemplar(exemplar: &telemetry::Exemplar) -> Exemplar {
    Exemplar {
        filtered_attributes: key_values(&exemplar.attributes),
        time_unix_nano: exemplar.time.0,
        span_id: exemplar.context.span_id().to_bytes().to_vec(),
        trace_id: exemplar.context.trace_id().to_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(exemplar.value)),
    }
}

fn exponential_end(series: &Series<'_>) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        attributes: key_values(series.attributes),
        start_time_unix_nano: series.start.0,
        time_unix_nano: series.time.0,
        flags: NO_RECORDED_VALUE,
        ..Default::default()
    }
}

fn explicit(series: &Series<'_>, histogram: &telemetry::ExponentialHistogram) -> HistogramDataPoint {
    HistogramDataPoint {
        count: histogram.count(),
        sum: Some(histogram.sum),
        explicit_bounds: telemetry::ExponentialHistogram::powers_of_two().collect(),
        bucket_counts: histogram.by_powers_of_two(),
        exemplars: histogram.exemplars.iter().map(exemplar).collect(),
        flags: 0,
        ..explicit_end(series)
    }
}

fn explicit_end(series: &Series<'_>) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: key_values(series.attributes),
        start_time_unix_nano: series.start.0,
        time_unix_nano: series.time.0,
        flags: NO_RECORDED_VALUE,
        ..Default::default()
    }
}

/// Returns a metric without points.
pub(super) fn empty_metric(descriptor: &Descriptor, form: Form) -> Metric {
    let is_delta = form.is_delta(descriptor.instrument);
    let temporality = if is_delta { AggregationTemporality::Delta } else { AggregationTemporality::Cumulative };
    let aggregation_temporality = temporality.into();
    let sum = |is_monotonic| metric::Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality, is_monotonic });
    Metric {
        name: descriptor.name.to_owned(),
        description: descriptor.description.to_owned(),
        unit: descriptor.unit.to_owned(),
        metadata: Vec::new(),
        data: Some(match descriptor.instrument {
            Instrument::Counter => sum(true),
            Instrument::UpDownCounter => sum(false),
            Instrument::Gauge => metric::Data::Gauge(Gauge::default()),
            of if of.is_histogram() && form.histograms.of(of) == Histograms::Explicit => {
                metric::Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality })
            }
            Instrument::ExponentialHistogram | Instrument::Histogram => {
                metric::Data::ExponentialHistogram(ExponentialHistogram {
                    data_points: Vec::new(),
                    aggregation_temporality,
                })
            }
        }),
    }
}

/// Returns a resource with the sidecar's scope and without metrics.
pub(super) fn empty_resource(resource: &telemetry::Resource) -> ResourceMetrics {
    ResourceMetrics {
        resource: Some(self::resource(resource)),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: Vec::new(),
            schema_url: SCHEMA_URL.to_owned(),
        }],
        schema_url: SCHEMA_URL.to_owned(),
    }
}

/// Returns a resource.
pub(super) fn resource(resource: &telemetry::Resource) -> Resource {
    Resource { attributes: key_values(&resource.attributes), ..Default::default() }
}

/// Returns the sidecar's scope.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), ..Default::default() }
}

/// Returns attributes.
pub(super) fn key_values(attributes: &Attributes) -> Vec<KeyValue> {
    attributes
        .iter()
        .map(|(key, value)| KeyValue { key: key.to_owned(), value: Some(any_value(value)), ..Default::default() })
        .collect()
}

fn any_value(value: &Value) -> AnyValue {
    let text = |text: &str| any_value::Value::StringValue(text.to_owned());
    let value = match value {
        Value::Text(value) => text(value),
        Value::Integer(number) => any_value::Value::IntValue(*number),
        Value::Flag(flag) => any_value::Value::BoolValue(*flag),
        Value::Texts(texts) => any_value::Value::ArrayValue(ArrayValue {
            values: texts.iter().map(|value| AnyValue { value: Some(text(value)) }).collect(),
        }),
    };
    AnyValue { value: Some(value) }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data as Wire;

    use super::*;
    use crate::{
        requests,
        telemetry::{Metric as Measured, Snapshot},
        testing::{DURATION, LOST, RATIO, START, THREADS, after, histogram, node, point},
    };

    fn encoded(descriptor: &'static Descriptor, data: Data) -> Option<ResourceMetrics> {
        let attributes = Attributes::new().with("text", "t").with("number", -3_i64).with("flag", true);
        let snapshot: Snapshot = node(vec![Measured { descriptor, points: vec![point(attributes, data)] }], after(10));
        requests(&snapshot, usize::MAX).next().and_then(|part| part.request.resource_metrics.into_iter().next())
    }

    fn data(descriptor: &'static Descriptor, data: Data) -> Option<Wire> {
        encoded(descriptor, data)?.scope_metrics.into_iter().next()?.metrics.into_iter().next()?.data
    }

    #[test]
    fn histograms_keep_scale_offset_and_every_bucket() {
        let measured = telemetry::ExponentialHistogram { zero_count: 7, ..histogram(-90, vec![1, 0, 5], 0.25) };
        let Some(Wire::ExponentialHistogram(metric)) = data(&DURATION, Data::Histogram(measured)) else {
            panic!("not an exponential histogram");
        };
        assert_eq!(metric.aggregation_temporality(), AggregationTemporality::Cumulative);
        let point = &metric.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (START.0, after(10).0));
        assert_eq!((point.count, point.zero_count, point.scale, point.sum), (13, 7, 2, Some(0.25)));
        assert_eq!(point.positive, Some(Buckets { offset: -90, bucket_counts: vec![1, 0, 5] }));
        assert_eq!(
            (point.zero_threshold, &point.negative, point.min, point.max),
            ((-24_f64).exp2(), &None, None, None)
        );
    }

    #[test]
    fn sums_are_cumulative_with_monotonicity() {
        for (descriptor, monotonic) in [(&LOST, true), (&THREADS, false)] {
            let Some(Wire::Sum(sum)) = data(descriptor, Data::Integer(5)) else { panic!("not a sum") };
            assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative);
            assert_eq!(sum.is_monotonic, monotonic);
            assert_eq!(sum.data_points[0].start_time_unix_nano, START.0);
        }
        let Some(Wire::Gauge(gauge)) = data(&RATIO, Data::Double(1.5)) else { panic!("not a gauge") };
        assert_eq!(gauge.data_points[0].start_time_unix_nano, 0);
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(1.5)));
    }

    #[test]
    fn the_last_point_of_a_series_has_attributes_and_no_value() {
        for descriptor in [&LOST, &THREADS, &RATIO] {
            let Some(Wire::Sum(Sum { data_points, .. }) | Wire::Gauge(Gauge { data_points })) =
                data(descriptor, Data::NoRecordedValue)
            else {
                panic!("not numbers");
            };
            let point = &data_points[0];
            assert_eq!((point.value, point.flags, point.attributes.len()), (None, 1, 3), "{}", descriptor.name);
            let start = if descriptor.instrument == Instrument::Gauge { 0 } else { START.0 };
            assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (start, after(10).0));
        }
        let Some(Wire::ExponentialHistogram(metric)) = data(&DURATION, Data::NoRecordedValue) else {
            panic!("not an exponential histogram");
        };
        let point = &metric.data_points[0];
        assert_eq!((point.count, point.sum, &point.positive, &point.negative), (0, None, &None, &None));
        assert_eq!((point.flags, point.attributes.len()), (1, 3));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (START.0, after(10).0));
    }

    #[test]
    fn recorded_points_have_no_flags() {
        let Some(Wire::Sum(sum)) = data(&LOST, Data::Integer(0)) else { panic!("not a sum") };
        assert_eq!(sum.data_points[0].flags, 0);
        let Some(Wire::ExponentialHistogram(metric)) = data(&DURATION, Data::Histogram(histogram(0, vec![], 0.0)))
        else {
            panic!("not an exponential histogram");
        };
        assert_eq!(metric.data_points[0].flags, 0);
    }

    #[test]
    fn invalid_points_are_omitted() {
        assert_eq!(encoded(&RATIO, Data::Double(f64::NAN)), None);
        assert_eq!(encoded(&RATIO, Data::Double(f64::INFINITY)), None);
        assert_eq!(encoded(&LOST, Data::Histogram(histogram(0, vec![1], 1.0))), None);
        assert_eq!(encoded(&DURATION, Data::Integer(1)), None);
    }

    #[test]
    fn attributes_keep_their_types() {
        let attributes = Attributes::new()
            .with("text", "t")
            .with("number", -3_i64)
            .with("flag", true)
            .with("texts", vec!["a".to_owned(), String::new()]);
        let text = |text: &str| any_value::Value::StringValue(text.to_owned());
        let values = ["a", ""].map(|value| AnyValue { value: Some(text(value)) }).to_vec();
        let expected = [
            ("text", text("t")),
            ("number", any_value::Value::IntValue(-3)),
            ("flag", any_value::Value::BoolValue(true)),
            ("texts", any_value::Value::ArrayValue(ArrayValue { values })),
        ];
        let encoded =
            key_values(&attributes).into_iter().map(|pair| (pair.key, pair.value.and_then(|value| value.value)));
        assert!(encoded.eq(expected.map(|(key, value)| (key.to_owned(), Some(value)))));
    }

    #[test]
    fn resources_have_scope_and_schema_url() {
        let Some(resource) = encoded(&LOST, Data::Integer(1)) else { panic!("nothing encoded") };
        assert_eq!(resource.schema_url, SCHEMA_URL);
        let keys: Vec<String> =
            resource.resource.into_iter().flat_map(|resource| resource.attributes).map(|pair| pair.key).collect();
        assert_eq!(keys, ["service.name", "host.name", "os.type"]);
        let scope = &resource.scope_metrics[0];
        assert_eq!(scope.schema_url, SCHEMA_URL);
        let name = scope.scope.as_ref().map(|scope| (scope.name.as_str(), scope.version.as_str()));
        assert_eq!(name, Some(("undercurrent", env!("CARGO_PKG_VERSION"))));
    }
}
