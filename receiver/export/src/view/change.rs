//! Changes between two snapshots.

use std::collections::HashMap;

use crate::telemetry::{
    Attributes, Data, Descriptor, ExponentialHistogram, Instrument, Metric, Point, Resource, ResourceMetrics, Snapshot,
    UnixNanos, Value,
};

/// An index of the previous snapshot.
pub(super) struct Earlier<'a> {
    time: UnixNanos,
    resources: HashMap<Identity<'a>, &'a ResourceMetrics>,
}

/// The identity of a resource, which stays constant while attributes are added: its instance id, or else all
/// attributes.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    Instance(&'a Value),
    Attributes(&'a Attributes),
}

impl<'a> Identity<'a> {
    fn new(resource: &'a Resource) -> Self {
        let attributes = &resource.attributes;
        attributes.get("service.instance.id").map_or(Self::Attributes(attributes), Self::Instance)
    }
}

impl<'a> Earlier<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let resources = snapshot.resources.iter().map(|metrics| (Identity::new(&metrics.resource), metrics)).collect();
        Self { time: snapshot.time, resources }
    }

    fn points(&self, resource: &Resource, descriptor: &Descriptor) -> &'a [Point] {
        let metrics = self.resources.get(&Identity::new(resource)).map_or(&[][..], |resource| &resource.metrics);
        metrics.iter().find(|metric| metric.descriptor.name == descriptor.name).map_or(&[], |metric| &metric.points)
    }
}

/// A point's change in the last interval.
pub(super) struct Change<'a> {
    pub(super) attributes: &'a Attributes,
    /// The length of the interval.
    pub(super) seconds: f64,
    pub(super) value: Measured,
}

/// The measurement of a change, by instrument.
pub(super) enum Measured {
    /// The growth of a sum, and its current value.
    Growth { by: f64, to: f64 },
    /// The current value.
    Level(f64),
    /// The durations recorded in the interval.
    Distribution(ExponentialHistogram),
}

impl Change<'_> {
    /// Returns the growth or the events per second. Returns `None` for a level, and for an empty interval.
    pub(super) fn per_second(&self) -> Option<f64> {
        let amount = match &self.value {
            Measured::Growth { by, .. } => *by,
            Measured::Distribution(histogram) => histogram.count() as f64,
            Measured::Level(_) => return None,
        };
        (self.seconds > 0.0).then(|| amount / self.seconds)
    }

    /// Returns a copy with equal attributes.
    pub(super) fn copy(&self) -> Self {
        let value = match &self.value {
            Measured::Growth { by, to } => Measured::Growth { by: *by, to: *to },
            Measured::Level(value) => Measured::Level(*value),
            Measured::Distribution(histogram) => Measured::Distribution(histogram.clone()),
        };
        Self { attributes: self.attributes, seconds: self.seconds, value }
    }

    /// Adds the change of another point in the same row. Only sums and distributions can be added.
    pub(super) fn add(&mut self, other: &Self) {
        match (&mut self.value, &other.value) {
            (Measured::Growth { by, to }, Measured::Growth { by: more, to: all }) => {
                *by += more;
                *to += all;
            }
            (Measured::Distribution(histogram), Measured::Distribution(more)) => histogram.add(more),
            _ => return,
        }
        self.seconds = self.seconds.max(other.seconds);
    }

    /// Returns true if nothing changed, or if the level is zero.
    pub(super) fn is_idle(&self) -> bool {
        match &self.value {
            Measured::Growth { by: amount, .. } | Measured::Level(amount) => *amount == 0.0,
            Measured::Distribution(histogram) => histogram.count() == 0,
        }
    }
}

/// Returns the changes of a metric's points, without ended series. A point with a new start time has restarted, so
/// it counts from zero.
pub(super) fn changes<'a>(
    earlier: Option<&Earlier<'a>>,
    time: UnixNanos,
    resource: &Resource,
    metric: &'a Metric,
) -> Vec<Change<'a>> {
    let points = earlier.map_or(&[][..], |earlier| earlier.points(resource, metric.descriptor));
    let before: HashMap<&Attributes, &Point> = points.iter().map(|point| (&point.attributes, point)).collect();
    let change = |point: &'a Point| {
        let before = before.get(&point.attributes).filter(|before| before.start == point.start);
        // A series that appeared in the interval was zero at its start.
        let since = earlier.map_or(point.start, |earlier| UnixNanos(earlier.time.0.max(point.start.0)));
        Some(Change {
            attributes: &point.attributes,
            seconds: time.0.saturating_sub(since.0) as f64 / 1e9,
            value: measured(metric.descriptor.instrument, &point.data, before.map(|point| &point.data))?,
        })
    };
    metric.points.iter().filter_map(change).collect()
}

/// Returns `None` if a point has no recorded value.
fn measured(instrument: Instrument, now: &Data, before: Option<&Data>) -> Option<Measured> {
    if let Data::Histogram(now) = now {
        return Some(Measured::Distribution(match before {
            Some(Data::Histogram(before)) => now.since(before),
            _ => now.clone(),
        }));
    }
    let to = number(now)?;
    let from = before.and_then(number).unwrap_or(0.0);
    Some(match instrument {
        // A counter that decreased has restarted, regardless of its start time.
        Instrument::Counter if to < from => Measured::Growth { by: to, to },
        Instrument::Counter => Measured::Growth { by: to - from, to },
        _ => Measured::Level(to),
    })
}

fn number(data: &Data) -> Option<f64> {
    match data {
        Data::Integer(number) => Some(*number as f64),
        Data::Double(number) => Some(*number),
        Data::Histogram(_) | Data::NoRecordedValue => None,
    }
}
