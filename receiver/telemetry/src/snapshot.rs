//! All measurements at one point in time.

use std::sync::Arc;

use super::{Attributes, Descriptor, ExponentialHistogram, Resource, UnixNanos};

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A histogram.
    Histogram(ExponentialHistogram),
    /// The data model's "no recorded value": it marks the end of a series, so that receivers stop waiting for points.
    NoRecordedValue,
}

impl Data {
    /// Returns a count; the largest integer for larger counts.
    #[must_use]
    pub fn count(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// One measurement with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The attributes that identify this point among the points of its metric.
    pub attributes: Attributes,
    /// Start time of a cumulative measurement.
    pub start: UnixNanos,
    /// The measured value.
    pub data: Data,
}

/// A metric and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name, unit, instrument and attributes of the metric.
    pub descriptor: &'static Descriptor,
    /// The points, with distinct sets of attributes.
    pub points: Vec<Point>,
}

impl Metric {
    /// Returns the final points of every series: equal attributes and start times, with [`Data::NoRecordedValue`].
    #[must_use]
    pub fn expired(&self) -> Self {
        let end = |point: &Point| Point {
            attributes: point.attributes.clone(),
            start: point.start,
            data: Data::NoRecordedValue,
        };
        Self { descriptor: self.descriptor, points: self.points.iter().map(end).collect() }
    }
}

/// The metrics of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceMetrics {
    /// The resource that the metrics describe.
    pub resource: Arc<Resource>,
    /// The metrics of the resource.
    pub metrics: Vec<Metric>,
}

impl ResourceMetrics {
    /// Returns the end markers of a resource's series: [`Metric::expired`] for each metric. Exporters send them once,
    /// after the last totals.
    #[must_use]
    pub fn expired(&self) -> Self {
        Self { resource: Arc::clone(&self.resource), metrics: self.metrics.iter().map(Metric::expired).collect() }
    }
}

/// All measurements at one point in time. All points share one timestamp.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The timestamp of all points.
    pub time: UnixNanos,
    /// The metrics by resource. The node's resource comes first.
    pub resources: Vec<ResourceMetrics>,
}

impl Snapshot {
    /// Returns the number of points.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.resources.iter().flat_map(|resource| &resource.metrics).map(|metric| metric.points.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instrument, View};

    static DESCRIPTOR: Descriptor = Descriptor {
        name: "undercurrent.cpu.time",
        unit: "s",
        description: "CPU time.",
        instrument: Instrument::Counter,
        attributes: &[],
        view: View::Section,
    };

    #[test]
    fn expired_points_keep_attributes_and_start_times() {
        let point = |cpu: i64, start, data| Point { attributes: Attributes::new().with("cpu", cpu), start, data };
        let points = |values: [Data; 2]| {
            let [one, other] = values;
            vec![point(0, UnixNanos(5), one), point(1, UnixNanos(7), other)]
        };
        let resource = Arc::new(Resource { attributes: Attributes::new().with("container.name", "web") });
        let of = |values| ResourceMetrics {
            resource: Arc::clone(&resource),
            metrics: vec![Metric { descriptor: &DESCRIPTOR, points: points(values) }],
        };
        let last = of([Data::Integer(3), Data::Double(0.5)]);
        let end = of([Data::NoRecordedValue, Data::NoRecordedValue]);
        assert_eq!(last.expired(), end);
        assert_eq!(end.expired(), end);
    }
}
