//! Prometheus' protobuf format (`io.prometheus.client.MetricFamily`), with native histograms.
//!
//! The messages have the used fields of `io/prometheus/client/metrics.proto`. `prometheus-client` 0.26 generates all messages at build time, which
//! requires a compiler for protobuf, and its encoder writes no exemplars of native histograms.

use prost::{Enumeration, Message};

use super::{
    families::{Families, Family, Label, Series, of_exemplar},
    kept::Exemplars,
};
use crate::telemetry::{self, Data, ExponentialHistogram, Instrument, UnixNanos};

/// Most consecutive empty buckets within a span of native buckets. Another span would take more bytes.
const GAP: usize = 2;
const NANOSECONDS: u64 = 1_000_000_000;

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    start: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    /// The difference of each count to the one before.
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    start: Option<Timestamp>,
    /// Exemplars of native histograms, in the order of time.
    #[prost(message, repeated, tag = "16")]
    exemplars: Vec<Exemplar>,
}

/// A bucket of a histogram with fixed bounds.
#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<Exemplar>,
}

/// Consecutive native buckets.
#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    /// The index of the first bucket, or the number of empty buckets after the span before.
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Encodes all families, each after its length.
pub(super) fn encode(families: &Families<'_>, exemplars: &Exemplars) -> Vec<u8> {
    let mut encoded = Vec::new();
    let target = (!families.targets.is_empty()).then(|| target_info(&families.targets));
    for family in families.families.iter().map(|family| of_family(family, exemplars)).chain(target) {
        // A `Vec` grows, so the space suffices.
        let _ = family.encode_length_delimited(&mut encoded);
    }
    encoded
}

fn of_family(family: &Family<'_>, exemplars: &Exemplars) -> MetricFamily {
    let descriptor = family.descriptor;
    let kind = match descriptor.instrument {
        Instrument::Counter => MetricType::Counter,
        Instrument::UpDownCounter | Instrument::Gauge => MetricType::Gauge,
        Instrument::ExponentialHistogram | Instrument::Histogram => MetricType::Histogram,
    };
    MetricFamily {
        name: family.name.clone(),
        help: descriptor.description.to_owned(),
        kind: kind.into(),
        metric: family.series.iter().map(|series| metric(family, series, exemplars)).collect(),
        unit: super::names::unit(descriptor).unwrap_or_default().to_owned(),
    }
}

fn metric(family: &Family<'_>, series: &Series<'_>, exemplars: &Exemplars) -> Metric {
    let instrument = family.descriptor.instrument;
    let (label, start) = (labels(&series.labels), Some(timestamp(series.point.start)));
    let number = match &series.point.data {
        Data::Histogram(histogram) => {
            let kept = exemplars.of(series.resource, family.descriptor.name, &series.point.attributes);
            let histogram = Histogram { start, ..of_histogram(histogram, instrument, kept) };
            return Metric { label, histogram: Some(histogram), ..Metric::default() };
        }
        Data::Integer(number) => *number as f64,
        Data::Double(number) => *number,
        Data::NoRecordedValue => f64::NAN,
    };
    match instrument {
        Instrument::Counter => Metric { label, counter: Some(Counter { value: number, start }), ..Metric::default() },
        _ => Metric { label, gauge: Some(Gauge { value: number }), ..Metric::default() },
    }
}

/// Returns a histogram with fixed bounds and, for exponential histograms, with native buckets.
fn of_histogram(
    histogram: &ExponentialHistogram,
    instrument: Instrument,
    exemplars: &[telemetry::Exemplar],
) -> Histogram {
    let classic = Histogram {
        count: histogram.count(),
        sum: histogram.sum,
        bucket: of_bounds(histogram, exemplars),
        ..Histogram::default()
    };
    if instrument == Instrument::Histogram {
        return classic;
    }
    let (positive_span, positive_delta) = native(histogram.offset, &histogram.buckets);
    Histogram {
        schema: histogram.scale,
        zero_threshold: histogram.zero_threshold,
        zero_count: histogram.zero_count,
        positive_span,
        positive_delta,
        exemplars: exemplars.iter().map(exemplar).collect(),
        ..classic
    }
}

/// Returns the buckets with powers of two as bounds, without the infinite one.
fn of_bounds(histogram: &ExponentialHistogram, exemplars: &[telemetry::Exemplar]) -> Vec<Bucket> {
    let mut cumulative_count = 0;
    let buckets = super::bounded(histogram, exemplars);
    buckets
        .take_while(|bucket| bucket.bound.is_finite())
        .map(|bucket| {
            cumulative_count += bucket.count;
            Bucket { cumulative_count, upper_bound: bucket.bound, exemplar: bucket.exemplar.map(exemplar) }
        })
        .collect()
}

/// Returns the native buckets. Prometheus numbers a bucket by its upper bound, OpenTelemetry by its lower bound.
fn native(offset: i32, counts: &[u64]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, Vec<i64>) = Default::default();
    let (mut before, mut empty) = (0_i64, 0_usize);
    for (position, count) in counts.iter().enumerate() {
        if *count == 0 {
            empty += 1;
            continue;
        }
        let index = offset.saturating_add(1).saturating_add_unsigned(u32::try_from(position).unwrap_or(u32::MAX));
        match spans.last_mut() {
            Some(span) if empty <= GAP => {
                span.length += u32::try_from(empty).unwrap_or(0) + 1;
                for _ in 0..empty {
                    deltas.push(-before);
                    before = 0;
                }
            }
            last => {
                let offset = if last.is_none() { index } else { i32::try_from(empty).unwrap_or(i32::MAX) };
                spans.push(BucketSpan { offset, length: 1 });
            }
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (before, empty) = (count, 0);
    }
    (spans, deltas)
}

fn exemplar(exemplar: &telemetry::Exemplar) -> Exemplar {
    Exemplar { label: labels(&of_exemplar(exemplar)), value: exemplar.value, timestamp: Some(timestamp(exemplar.time)) }
}

fn target_info(targets: &[Vec<Label>]) -> MetricFamily {
    let one =
        |target: &Vec<Label>| Metric { label: labels(target), gauge: Some(Gauge { value: 1.0 }), ..Metric::default() };
    MetricFamily {
        name: super::TARGET_INFO.to_owned(),
        help: super::TARGET_HELP.to_owned(),
        kind: MetricType::Gauge.into(),
        metric: targets.iter().map(one).collect(),
        unit: String::new(),
    }
}

fn labels(labels: &[Label]) -> Vec<LabelPair> {
    labels.iter().map(|(name, value)| LabelPair { name: name.clone(), value: value.clone() }).collect()
}

fn timestamp(time: UnixNanos) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.0 / NANOSECONDS).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.0 % NANOSECONDS).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the counts of native buckets by index.
    fn counts(spans: &[BucketSpan], deltas: &[i64]) -> Vec<(i32, i64)> {
        let (mut found, mut next, mut count) = (Vec::new(), 0, 0);
        let mut deltas = deltas.iter();
        for span in spans {
            next += span.offset;
            for _ in 0..span.length {
                count += deltas.next().expect("a delta for each bucket");
                found.push((next, count));
                next += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found.retain(|(_, count)| *count != 0);
        found
    }

    proptest! {
        #[test]
        fn native_buckets_have_every_count(
            offset in -200..200_i32,
            buckets in prop::collection::vec(prop_oneof![3 => Just(0), 2 => 0..u64::MAX / 4], 0..60),
        ) {
            let (spans, deltas) = native(offset, &buckets);
            let expected: Vec<(i32, i64)> = (offset + 1..)
                .zip(buckets.iter().map(|count| count.cast_signed()))
                .filter(|(_, count)| *count != 0)
                .collect();
            prop_assert_eq!(counts(&spans, &deltas), expected);
        }
    }
}
