//! Everything measured at one moment.

use std::{sync::Arc, time::SystemTime};

use super::{Attributes, Descriptor, ExponentialHistogram, Resource};

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// The wall clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for UnixNanos {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// A whole number.
    Integer(i64),
    /// A number.
    Double(f64),
    /// A distribution.
    Histogram(ExponentialHistogram),
    /// The data model's "no recorded value": the series is over, and whoever keeps it need not wait for more.
    NoRecordedValue,
}

/// One measurement with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What tells it from the other points of its metric.
    pub attributes: Attributes,
    /// Since when a cumulative measurement counts.
    pub start: UnixNanos,
    /// The measurement.
    pub data: Data,
}

/// A metric and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// What the metric is.
    pub descriptor: &'static Descriptor,
    /// Its points, each set of attributes once.
    pub points: Vec<Point>,
}

impl Metric {
    /// The end of every series of this metric: the same points since the same starts, with [`Data::NoRecordedValue`].
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
    /// Whom they are about.
    pub resource: Arc<Resource>,
    /// The metrics.
    pub metrics: Vec<Metric>,
}

impl ResourceMetrics {
    /// What is said once of a resource that is over, after its last totals: [`Metric::expired`] of each metric.
    #[must_use]
    pub fn expired(&self) -> Self {
        Self { resource: Arc::clone(&self.resource), metrics: self.metrics.iter().map(Metric::expired).collect() }
    }
}

/// Everything measured at one moment: one timestamp for all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When.
    pub time: UnixNanos,
    /// What, by resource, the node's first.
    pub resources: Vec<ResourceMetrics>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Instrument, View};

    static DESCRIPTOR: Descriptor = Descriptor {
        name: "undercurrent.cpu.time",
        unit: "s",
        description: "CPU time.",
        instrument: Instrument::Counter,
        attributes: &[],
        view: View::Section,
    };

    #[test]
    fn what_expires_keeps_everything_but_its_values() {
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
