//! Splits a snapshot into requests of limited size.

use std::{borrow::Cow, vec};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{Metric, ResourceMetrics},
};
use prost::Message;

use super::{
    acknowledged::{CollectorState, PointIndex},
    encode::{NESTED, Series, WirePoint, empty_metric, empty_resource},
    form::Form,
};
use crate::telemetry::{self, Point, Snapshot, UnixNanos};

/// A part of a snapshot.
pub struct Part {
    /// The request message.
    pub request: ExportMetricsServiceRequest,
    /// The number of points in the request.
    pub points: u64,
    /// The indices of the points in the snapshot; empty for cumulative metrics.
    pub(super) indices: Vec<PointIndex>,
}

/// Splits a snapshot into requests of at most `limit` encoded bytes, in order. The iterator builds each request
/// when it is needed. The points of a metric are sorted by their attributes, so a snapshot always results in equal
/// requests.
///
/// A point that exceeds the limit together with its resource forms a larger request alone.
#[must_use]
pub fn requests(snapshot: &Snapshot, limit: usize) -> Requests<'_> {
    requests_in(snapshot, limit, CollectorState::default())
}

/// Splits a snapshot into requests as [`requests`] does, for a collector that prefers another form of metrics.
pub(super) fn requests_in(snapshot: &Snapshot, limit: usize, collector: CollectorState) -> Requests<'_> {
    let mut entries = Vec::new();
    for (resource, number) in snapshot.resources.iter().zip(0..) {
        for (metric, metric_number) in resource.metrics.iter().zip(0..) {
            let first = entries.len();
            let index = |point| PointIndex { resource: number, metric: metric_number, point };
            let points = metric.points.iter().zip(0..);
            entries.extend(points.map(|(point, number)| Entry { resource, metric, point, index: index(number) }));
            entries[first..].sort_by(|one, other| one.point.attributes.cmp(&other.point.attributes));
        }
    }
    Requests { entries: entries.into_iter(), pending: None, time: snapshot.time, limit, collector }
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    resource: &'a telemetry::ResourceMetrics,
    metric: &'a telemetry::Metric,
    point: &'a Point,
    index: PointIndex,
}

/// The iterator of [`requests`].
pub struct Requests<'a> {
    entries: vec::IntoIter<Entry<'a>>,
    /// The first point of the next request: it did not fit into the last one.
    pending: Option<(Entry<'a>, WirePoint)>,
    time: UnixNanos,
    limit: usize,
    collector: CollectorState,
}

impl<'a> Requests<'a> {
    /// Returns the next point in its encoding. Skips points that have none.
    fn next_point(&mut self) -> Option<(Entry<'a>, WirePoint)> {
        let Self { pending, entries, time, collector, .. } = self;
        pending.take().or_else(|| entries.find_map(|entry| Some((entry, encode(&entry, *time, collector)?))))
    }
}

/// Encodes a point. Returns `None` for data that has no encoding.
fn encode(entry: &Entry<'_>, time: UnixNanos, collector: &CollectorState) -> Option<WirePoint> {
    let Entry { resource, metric, point, .. } = *entry;
    let (start, data) = if collector.form.is_delta(metric.descriptor.instrument) {
        collector.acknowledged().since((resource, metric, point))?
    } else {
        (point.start, Cow::Borrowed(&point.data))
    };
    let series = Series { descriptor: metric.descriptor, attributes: &point.attributes, start, time };
    WirePoint::new(&series, &data, collector.form.histograms)
}

impl Iterator for Requests<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let mut part = Builder::default();
        while let Some((entry, point)) = self.next_point() {
            let addition = part.plan(&entry, &point, self.collector.form);
            if part.points > 0 && part.size + addition.size > self.limit {
                self.pending = Some((entry, point));
                break;
            }
            part.add(addition, &entry, point);
            if self.collector.form.is_delta(entry.metric.descriptor.instrument) {
                part.indices.push(entry.index);
            }
        }
        (part.points > 0).then_some(Part {
            request: ExportMetricsServiceRequest { resource_metrics: part.resources },
            points: part.points,
            indices: part.indices,
        })
    }
}

#[derive(Default)]
struct Builder<'a> {
    resources: Vec<ResourceMetrics>,
    /// The sources of the last resource and metric in `resources`.
    last: Option<(&'a telemetry::ResourceMetrics, &'a telemetry::Metric)>,
    /// An upper bound of the encoded size.
    size: usize,
    points: u64,
    indices: Vec<PointIndex>,
}

/// A point's additions to a request, and an upper bound of their size.
struct Addition {
    resource: Option<ResourceMetrics>,
    metric: Option<Metric>,
    size: usize,
}

impl<'a> Builder<'a> {
    fn plan(&self, entry: &Entry<'a>, point: &WirePoint, form: Form) -> Addition {
        let same_resource = self.last.is_some_and(|(resource, _)| std::ptr::eq(resource, entry.resource));
        let same_metric = same_resource && self.last.is_some_and(|(_, metric)| std::ptr::eq(metric, entry.metric));
        let resource = (!same_resource).then(|| empty_resource(&entry.resource.resource));
        let metric = (!same_metric).then(|| empty_metric(entry.metric.descriptor, form));
        let mut size = NESTED + point.encoded_len();
        // The lengths of the enclosing messages grow too: two levels each.
        size += resource.as_ref().map_or(0, |resource| 2 * NESTED + resource.encoded_len());
        size += metric.as_ref().map_or(0, |metric| 2 * NESTED + metric.encoded_len());
        Addition { resource, metric, size }
    }

    fn add(&mut self, addition: Addition, entry: &Entry<'a>, point: WirePoint) {
        self.resources.extend(addition.resource);
        let scope = self.resources.last_mut().and_then(|resource| resource.scope_metrics.last_mut());
        if let Some(scope) = scope {
            scope.metrics.extend(addition.metric);
            if let Some(metric) = scope.metrics.last_mut() {
                point.push_to(metric);
            }
        }
        self.last = Some((entry.resource, entry.metric));
        self.size += addition.size;
        self.points += 1;
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use proptest::prelude::*;

    use super::*;
    use crate::REQUEST_LIMIT;
    use crate::testing::{after, lost, snapshots};

    /// Returns every point in bytes, with the bytes of its resource, scope and metric.
    fn points(request: &ExportMetricsServiceRequest) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut points = Vec::new();
        for resource in &request.resource_metrics {
            for scope in &resource.scope_metrics {
                for metric in &scope.metrics {
                    let mut shell = metric.clone();
                    let bytes: Vec<Vec<u8>> = match (&metric.data, &mut shell.data) {
                        (Some(Data::Sum(sum)), Some(Data::Sum(shell))) => {
                            shell.data_points.clear();
                            sum.data_points.iter().map(Message::encode_to_vec).collect()
                        }
                        (Some(Data::Gauge(gauge)), Some(Data::Gauge(shell))) => {
                            shell.data_points.clear();
                            gauge.data_points.iter().map(Message::encode_to_vec).collect()
                        }
                        (Some(Data::ExponentialHistogram(histogram)), Some(Data::ExponentialHistogram(shell))) => {
                            shell.data_points.clear();
                            histogram.data_points.iter().map(Message::encode_to_vec).collect()
                        }
                        other => panic!("unexpected data {other:?}"),
                    };
                    let mut around = resource.clone();
                    around.scope_metrics = vec![scope.clone()];
                    around.scope_metrics[0].metrics = vec![shell];
                    let around = around.encode_to_vec();
                    points.extend(bytes.into_iter().map(|bytes| (around.clone(), bytes)));
                }
            }
        }
        points
    }

    proptest! {
        #[test]
        fn splitting_keeps_all_points_and_the_limit(
            snapshot in snapshots(),
            limit in 1_500_usize..20_000,
        ) {
            let expected: usize =
                snapshot.resources.iter().flat_map(|resource| &resource.metrics).map(|metric| metric.points.len()).sum();
            let whole: Vec<Part> = requests(&snapshot, usize::MAX).collect();
            prop_assert_eq!(whole.len(), usize::from(expected > 0));
            let whole: Vec<_> = whole.iter().flat_map(|part| points(&part.request)).collect();
            prop_assert_eq!(whole.len(), expected);

            let mut split = Vec::new();
            for part in requests(&snapshot, limit) {
                let bytes = part.request.encode_to_vec();
                prop_assert!(bytes.len() <= limit, "{} bytes", bytes.len());
                let decoded = ExportMetricsServiceRequest::decode(bytes.as_slice());
                let found = points(&decoded.map_err(|error| TestCaseError::fail(error.to_string()))?);
                prop_assert_eq!(found.len() as u64, part.points);
                prop_assert!(part.points > 0);
                split.extend(found);
            }
            prop_assert_eq!(split, whole);
        }

        #[test]
        fn the_order_of_points_does_not_affect_requests(snapshot in snapshots()) {
            let mut reversed = snapshot.clone();
            for metric in reversed.resources.iter_mut().flat_map(|resource| &mut resource.metrics) {
                metric.points.reverse();
            }
            let encode = |snapshot| requests(snapshot, 4_000).map(|part| part.request).collect::<Vec<_>>();
            prop_assert_eq!(encode(&snapshot), encode(&reversed));
        }
    }

    #[test]
    fn parts_of_a_large_snapshot_are_almost_full() {
        let snapshot = lost(120_000, after(1));
        let sizes: Vec<usize> = requests(&snapshot, REQUEST_LIMIT).map(|part| part.request.encoded_len()).collect();
        assert!(sizes.len() > 1 && sizes.iter().all(|size| *size <= REQUEST_LIMIT), "{sizes:?}");
        // The estimate is close: every part except the last uses more than 90 % of the limit.
        assert!(sizes[..sizes.len() - 1].iter().all(|size| *size > REQUEST_LIMIT / 10 * 9), "{sizes:?}");
    }
}
