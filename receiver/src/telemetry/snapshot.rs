//! Everything measured at one moment.

use std::{sync::Arc, time::SystemTime};

use super::{Attributes, Descriptor, ExponentialHistogram, Resource};

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

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

/// The metrics of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceMetrics {
    /// Whom they are about.
    pub resource: Arc<Resource>,
    /// The metrics.
    pub metrics: Vec<Metric>,
}

/// Everything measured at one moment: one timestamp for all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When.
    pub time: UnixNanos,
    /// What, by resource.
    pub resources: Vec<ResourceMetrics>,
}
