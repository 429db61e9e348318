//! The two snapshots of a view, with lookups of changes by metric.

use std::num::NonZeroUsize;

use super::{
    change::{Change, Earlier, Measured, changes},
    names::{Name, names},
    selection::Selection,
};
use crate::telemetry::{Attributes, ResourceMetrics, Snapshot};

/// The input of a view.
pub(super) struct Input<'a> {
    earlier: Option<Earlier<'a>>,
    pub(super) current: &'a Snapshot,
    pub(super) names: Vec<Name>,
    pub(super) cpus: Option<NonZeroUsize>,
    pub(super) selection: &'a Selection,
}

impl<'a> Input<'a> {
    pub(super) fn new(
        previous: Option<&'a Snapshot>,
        current: &'a Snapshot,
        cpus: Option<NonZeroUsize>,
        selection: &'a Selection,
    ) -> Self {
        Self { earlier: previous.map(Earlier::new), current, names: names(&current.resources), cpus, selection }
    }

    /// Returns the changes of a resource's metric in the last interval; none if the resource lacks the metric.
    pub(super) fn changes(&self, resource: &'a ResourceMetrics, metric: &str) -> Vec<Change<'a>> {
        let metric = resource.metrics.iter().find(|known| known.descriptor.name == metric);
        let changes = |metric| changes(self.earlier.as_ref(), self.current.time, &resource.resource, metric);
        metric.map_or_else(Vec::new, changes)
    }
}

/// The growth of a counter's points in the last interval, for sections with estimates from samples.
pub(super) struct Growths<'a>(Vec<Change<'a>>);

impl<'a> Growths<'a> {
    /// Returns the growth of a metric on one resource; empty without the metric.
    pub(super) fn new(input: &Input<'a>, resource: &'a ResourceMetrics, metric: &str) -> Self {
        Self(input.changes(resource, metric))
    }

    /// Returns the growth of a metric on all resources.
    pub(super) fn everywhere(input: &Input<'a>, metric: &str) -> Self {
        let resources = input.current.resources.iter();
        Self(resources.flat_map(|resource| Self::new(input, resource, metric).0).collect())
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
