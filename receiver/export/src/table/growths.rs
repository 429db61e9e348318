//! Growth of the node's counters by attributes, for sections with estimates from samples.

use super::{
    change::{Change, Measured},
    section::Input,
};
use crate::telemetry::{Attributes, ResourceMetrics};

/// The growth of a counter's points in the last interval.
pub(super) struct Growths<'a>(Vec<Change<'a>>);

impl<'a> Growths<'a> {
    /// Returns the growth of a metric on one resource; empty without the metric.
    pub(super) fn of(input: &Input<'a>, resource: &'a ResourceMetrics, metric: &str) -> Self {
        Self(input.changes(resource, metric))
    }

    /// Returns the growth of a metric on all resources.
    pub(super) fn everywhere(input: &Input<'a>, metric: &str) -> Self {
        let resources = input.current.resources.iter();
        Self(resources.flat_map(|resource| Self::of(input, resource, metric).0).collect())
    }

    /// Returns the attributes of the points.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &'a Attributes> {
        self.0.iter().map(|change| change.attributes)
    }

    /// Returns the sum of the growth of some points.
    pub(super) fn sum(&self, is_part: impl Fn(&Attributes) -> bool) -> f64 {
        self.part(&is_part).map(|(by, _)| by).sum()
    }

    /// Returns the sum of the growth per second of some points.
    pub(super) fn per_second(&self, is_part: impl Fn(&Attributes) -> bool) -> f64 {
        self.part(&is_part).filter(|(_, seconds)| *seconds > 0.0).map(|(by, seconds)| by / seconds).sum()
    }

    /// Returns true if no point is part.
    pub(super) fn is_empty(&self, is_part: impl Fn(&Attributes) -> bool) -> bool {
        self.part(&is_part).next().is_none()
    }

    fn part(&self, is_part: &impl Fn(&Attributes) -> bool) -> impl Iterator<Item = (f64, f64)> {
        self.0.iter().filter(|change| is_part(change.attributes)).filter_map(|change| match change.value {
            Measured::Growth { by, .. } => Some((by, change.seconds)),
            _ => None,
        })
    }
}
