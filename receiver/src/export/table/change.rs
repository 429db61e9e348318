//! What happened between two snapshots.

use std::collections::HashMap;

use crate::telemetry::{
    Attributes, Data, Descriptor, ExponentialHistogram, Instrument, Metric, Point, Resource, Snapshot, UnixNanos,
};

/// What a point says about the last interval.
pub(super) struct Change<'a> {
    pub(super) attributes: &'a Attributes,
    /// Length of the interval.
    pub(super) seconds: f64,
    pub(super) value: Measured,
}

/// By the instrument.
pub(super) enum Measured {
    /// How much a sum grew, and to what.
    Growth { by: f64, to: f64 },
    /// A value as it is now.
    Level(f64),
    /// What was measured in the interval.
    Distribution(ExponentialHistogram),
}

impl Change<'_> {
    /// Growth or measurements per second; `None` of a level, or if no time has passed.
    pub(super) fn per_second(&self) -> Option<f64> {
        let amount = match &self.value {
            Measured::Growth { by, .. } => *by,
            Measured::Distribution(histogram) => histogram.count() as f64,
            Measured::Level(_) => return None,
        };
        (self.seconds > 0.0).then(|| amount / self.seconds)
    }
}

/// The changes of a metric's points, without those of series that are over. A point whose start time is another one than
/// before began anew, and counts from zero since its start.
pub(super) fn changes<'a>(
    previous: Option<&Snapshot>,
    time: UnixNanos,
    resource: &Resource,
    metric: &'a Metric,
) -> Vec<Change<'a>> {
    let before: HashMap<&Attributes, &Point> = previous
        .and_then(|snapshot| find(snapshot, resource, metric.descriptor))
        .map(|metric| metric.points.iter().map(|point| (&point.attributes, point)).collect())
        .unwrap_or_default();
    let change = |point: &'a Point| {
        let earlier = before.get(&point.attributes).filter(|earlier| earlier.start == point.start);
        let since = match (earlier, previous) {
            (Some(_), Some(previous)) => previous.time,
            _ => point.start,
        };
        Some(Change {
            attributes: &point.attributes,
            seconds: time.0.saturating_sub(since.0) as f64 / 1e9,
            value: measured(metric.descriptor.instrument, &point.data, earlier.map(|point| &point.data))?,
        })
    };
    metric.points.iter().filter_map(change).collect()
}

fn find<'a>(snapshot: &'a Snapshot, resource: &Resource, descriptor: &Descriptor) -> Option<&'a Metric> {
    let resource = snapshot.resources.iter().find(|candidate| *candidate.resource == *resource)?;
    resource.metrics.iter().find(|metric| metric.descriptor.name == descriptor.name)
}

/// `None` where no value is recorded.
fn measured(instrument: Instrument, now: &Data, earlier: Option<&Data>) -> Option<Measured> {
    if let Data::Histogram(now) = now {
        return Some(Measured::Distribution(match earlier {
            Some(Data::Histogram(earlier)) => now.since(earlier),
            _ => now.clone(),
        }));
    }
    let to = number(now)?;
    let from = earlier.and_then(number).unwrap_or(0.0);
    Some(match instrument {
        // A counter that fell has begun anew, whatever its start time says.
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
