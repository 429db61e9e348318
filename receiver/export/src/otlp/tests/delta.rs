//! Tests of metrics with delta temporality and with explicit buckets.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{AggregationTemporality, metric::Data as Wire, number_data_point::Value},
};
use proptest::prelude::*;

use super::settings;
use crate::{
    acknowledged::CollectorState,
    otlp::{Form, Histograms, Temporality},
    split::requests_in,
    telemetry::{Attributes, Data, Metric, Point, ResourceMetrics, Snapshot, UnixNanos},
    testing::{DURATION, LOST, START, THREADS, after, histogram, point, resource_metrics},
};

/// A received point: its series, the times that it covers, and its count by bucket. A counter has one bucket.
type Received = (String, [u64; 2], BTreeMap<i64, i64>);

/// Returns the delta points of a request.
fn received(request: &ExportMetricsServiceRequest) -> Vec<Received> {
    let mut points = Vec::new();
    for resource in &request.resource_metrics {
        let of = format!("{:?}", resource.resource.as_ref().and_then(|resource| resource.attributes[0].value.clone()));
        for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            let series = |attributes: &dyn std::fmt::Debug| format!("{of} {} {attributes:?}", metric.name);
            match metric.data.as_ref().expect("data") {
                Wire::Sum(sum) if sum.aggregation_temporality() == AggregationTemporality::Delta => {
                    for point in &sum.data_points {
                        let Some(Value::AsInt(count)) = point.value else { panic!("no integer: {point:?}") };
                        let times = [point.start_time_unix_nano, point.time_unix_nano];
                        points.push((series(&point.attributes), times, [(0, count)].into()));
                    }
                }
                Wire::ExponentialHistogram(metric) => {
                    for point in &metric.data_points {
                        let buckets = point.positive.as_ref().expect("buckets");
                        let counts = buckets.bucket_counts.iter().map(|count| *count as i64);
                        let counts = (i64::from(buckets.offset)..).zip(counts).filter(|(_, count)| *count > 0);
                        let times = [point.start_time_unix_nano, point.time_unix_nano];
                        points.push((series(&point.attributes), times, counts.collect()));
                    }
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    points
}

/// Adds points to the totals of their series. Each must begin where the last one ended.
fn add(totals: &mut BTreeMap<String, (u64, BTreeMap<i64, i64>)>, points: Vec<Received>) -> Result<(), TestCaseError> {
    for (series, [start, end], counts) in points {
        let (time, total) = totals.entry(series).or_insert((START.0, BTreeMap::new()));
        prop_assert_eq!(*time, start, "a gap or an overlap");
        *time = end;
        counts.into_iter().for_each(|(bucket, count)| *total.entry(bucket).or_default() += count);
    }
    Ok(())
}

/// Returns a snapshot with a counter and a histogram of each workload, from their cumulative buckets.
fn snapshot(counts: &[Vec<u64>], time: UnixNanos) -> Snapshot {
    let workload = |(number, counts): (usize, &Vec<u64>)| {
        // The name of a workload is known after the first snapshot; its identity is not affected.
        let name = if time == after(1) { "" } else { "web" };
        let attributes = Attributes::new().with("service.instance.id", number.to_string()).with("container.name", name);
        let counter = point(Attributes::new().with("n", 1_i64), Data::count(counts.iter().sum()));
        let buckets = point(Attributes::new(), Data::Histogram(histogram(-3, counts.clone(), 0.0)));
        resource_metrics(
            attributes,
            vec![
                Metric { descriptor: &LOST, points: vec![counter] },
                Metric { descriptor: &DURATION, points: vec![buckets] },
            ],
        )
    };
    Snapshot { time, resources: counts.iter().enumerate().map(workload).collect() }
}

fn delta() -> CollectorState {
    CollectorState::new(Form { temporality: Temporality::Delta, histograms: Histograms::Exponential })
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Accepted,
    /// Refused, or without an answer until a newer snapshot came.
    Lost,
}

proptest! {
    /// Whatever requests are lost, and whatever snapshots are replaced, the accepted points add up to the last totals.
    #[test]
    fn the_differences_add_up_to_the_totals(
        ticks in prop::collection::vec((
            prop::collection::vec(prop::collection::vec(0..50_u64, 6), 4),
            prop::collection::vec(prop_oneof![Just(Outcome::Accepted), Just(Outcome::Lost)], 8),
        ), 1..12),
        limit in 400_usize..3000,
    ) {
        let view = delta();
        let mut counts = vec![vec![0; 6]; 4];
        let mut totals = BTreeMap::new();
        let last = ticks.len() as u64;
        for ((added, outcomes), tick) in ticks.into_iter().zip(1..) {
            for (counts, added) in counts.iter_mut().flatten().zip(added.iter().flatten()) {
                *counts += added;
            }
            let snapshot = snapshot(&counts, after(tick));
            let outcomes = outcomes.into_iter().chain(std::iter::repeat(Outcome::Lost));
            for (part, outcome) in requests_in(&snapshot, limit, view.clone()).zip(outcomes) {
                if tick == last || matches!(outcome, Outcome::Accepted) {
                    view.acknowledge(&snapshot, &part.indices);
                    add(&mut totals, received(&part.request))?;
                }
            }
            view.finish(&snapshot);
        }
        // The last snapshot may have had more requests than outcomes.
        let snapshot = snapshot(&counts, after(last + 1));
        for part in requests_in(&snapshot, limit, view.clone()) {
            add(&mut totals, received(&part.request))?;
        }
        prop_assert_eq!(totals.len(), 8);
        for (series, (time, total)) in totals {
            prop_assert_eq!(time, after(last + 1).0);
            let all: i64 = total.values().sum();
            let workload = (0..4).find(|number| series.contains(&format!("\"{number}\""))).expect("a workload");
            prop_assert_eq!(all.cast_unsigned(), counts[workload].iter().sum::<u64>());
            if series.contains(DURATION.name) {
                let expected = (-3..).zip(counts[workload].iter().map(|n| *n as i64)).filter(|(_, n)| *n > 0);
                prop_assert_eq!(total.into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }
}

/// Sends a snapshot whose only point is this one, and returns what the collector receives.
fn send(view: &CollectorState, point: Point, time: UnixNanos) -> Vec<Received> {
    let snapshot = Snapshot {
        time,
        resources: vec![resource_metrics(
            Attributes::new().with("id", "x"),
            vec![Metric { descriptor: &LOST, points: vec![point] }],
        )],
    };
    let mut all = Vec::new();
    for part in requests_in(&snapshot, usize::MAX, view.clone()) {
        view.acknowledge(&snapshot, &part.indices);
        all.extend(received(&part.request));
    }
    view.finish(&snapshot);
    all
}

#[test]
fn series_that_begin_again_count_from_zero() {
    let view = delta();
    let lost = |start, count| Point { attributes: Attributes::new(), start, data: Data::Integer(count) };
    let sent = |point, seconds| {
        let (_, times, counts) = send(&view, point, after(seconds)).remove(0);
        (times, counts[&0])
    };
    assert_eq!(sent(lost(START, 7), 1), ([START.0, after(1).0], 7));
    assert_eq!(sent(lost(START, 9), 2), ([after(1).0, after(2).0], 2));
    assert_eq!(sent(lost(after(2), 3), 3), ([after(2).0, after(3).0], 3));
    // A count that decreased is no difference.
    assert_eq!(sent(lost(after(2), 1), 4), ([after(2).0, after(4).0], 1));
    // The end of a series has no measurements.
    let end = Point { attributes: Attributes::new(), start: after(2), data: Data::NoRecordedValue };
    assert_eq!(send(&view, end, after(5)), []);
    // An absent series is remembered for an hour, and then forgotten.
    assert_eq!(sent(lost(after(2), 5), 3000), ([after(4).0, after(3000).0], 4));
    send(&view, Point { attributes: Attributes::new().with("other", true), ..lost(START, 0) }, after(9000));
    assert_eq!(sent(lost(after(2), 6), 9001), ([after(2).0, after(9001).0], 6));
}

/// Returns the metrics of a snapshot in the form that variables select.
fn exported(variables: &[(&str, &str)]) -> Vec<(String, Wire)> {
    let points = |data| vec![point(Attributes::new(), data)];
    let metrics = vec![
        Metric { descriptor: &LOST, points: points(Data::Integer(1)) },
        Metric { descriptor: &THREADS, points: points(Data::Integer(2)) },
        Metric { descriptor: &DURATION, points: points(Data::Histogram(histogram(-9, vec![1, 0, 4], 0.5))) },
    ];
    let resources: Vec<ResourceMetrics> = vec![resource_metrics(Attributes::new(), metrics)];
    let snapshot = Snapshot { time: after(1), resources };
    let view = CollectorState::new(settings(variables).form);
    let mut request = requests_in(&snapshot, usize::MAX, view).next().expect("a request").request;
    let metrics = request.resource_metrics.remove(0).scope_metrics.remove(0).metrics;
    metrics.into_iter().map(|metric| (metric.name, metric.data.expect("data"))).collect()
}

#[test]
fn temporality_depends_on_the_preference_and_the_instrument() {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
    for (value, expected) in [
        ("cumulative", [false; 3]),
        ("Delta", [true, false, true]),
        ("LOWMEMORY", [false, false, true]),
        ("", [false; 3]),
    ] {
        let is_delta = |data: &Wire| match data {
            Wire::Sum(sum) => sum.aggregation_temporality() == AggregationTemporality::Delta,
            Wire::ExponentialHistogram(histogram) => {
                histogram.aggregation_temporality() == AggregationTemporality::Delta
            }
            other => panic!("unexpected {other:?}"),
        };
        let found: Vec<bool> = exported(&[(VARIABLE, value)]).iter().map(|(_, data)| is_delta(data)).collect();
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn explicit_histograms_have_powers_of_two_as_bounds() {
    let variable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION";
    let Some((_, Wire::Histogram(metric))) = exported(&[(variable, "explicit_bucket_histogram")]).pop() else {
        panic!("no explicit histogram");
    };
    assert_eq!(metric.aggregation_temporality(), AggregationTemporality::Cumulative);
    let point = &metric.data_points[0];
    assert_eq!((point.count, point.sum, point.bucket_counts.len()), (5, Some(0.5), point.explicit_bounds.len() + 1));
    let counts: Vec<(f64, u64)> =
        point.explicit_bounds.iter().copied().zip(point.bucket_counts.iter().copied()).collect();
    let filled: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    // At scale 2, the buckets -9 and -7 end at 2^-2 and 2^-1.5.
    assert_eq!(filled, [(0.25, 1), (0.5, 4)]);
}
