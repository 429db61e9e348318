//! The metrics that signals return at one tick, grouped by workload.

use std::{collections::BTreeMap, sync::Arc};

use undercurrent_ebpf::abi::workload::Slot;

use super::{Attributes, Data, Descriptor, ExponentialHistogram, Metric, Point, Resource, ResourceMetrics};

/// Metrics by workload slot, each metric once.
#[derive(Debug, Default)]
pub struct Readings(BTreeMap<Slot, Vec<Metric>>);

impl Readings {
    /// Adds the points of a metric to a slot. Merges them with earlier points of this metric, and ignores a metric
    /// without points.
    pub fn add(&mut self, slot: Slot, metric: Metric) {
        if metric.points.is_empty() {
            return;
        }
        let metrics = self.0.entry(slot).or_default();
        match metrics.iter_mut().find(|known| std::ptr::eq(known.descriptor, metric.descriptor)) {
            Some(known) => known.points.extend(metric.points),
            None => metrics.push(metric),
        }
    }

    /// Returns the points of a metric, of all slots.
    pub fn points(&self, descriptor: &'static Descriptor) -> impl Iterator<Item = &Point> {
        self.points_by_slot(descriptor).map(|(_, point)| point)
    }

    /// Returns the points of a metric with their slots.
    pub fn points_by_slot(&self, descriptor: &'static Descriptor) -> impl Iterator<Item = (Slot, &Point)> {
        self.0.iter().flat_map(move |(slot, metrics)| {
            let metrics = metrics.iter().filter(move |metric| std::ptr::eq(metric.descriptor, descriptor));
            metrics.flat_map(move |metric| metric.points.iter().map(move |point| (*slot, point)))
        })
    }

    /// Returns the histogram of a slot's metric with these attributes.
    pub fn histogram(
        &mut self,
        slot: Slot,
        descriptor: &'static Descriptor,
        attributes: &Attributes,
    ) -> Option<&mut ExponentialHistogram> {
        let metrics = self.0.get_mut(&slot)?;
        let metric = metrics.iter_mut().find(|metric| std::ptr::eq(metric.descriptor, descriptor))?;
        let point = metric.points.iter_mut().find(|point| point.attributes == *attributes)?;
        match &mut point.data {
            Data::Histogram(histogram) => Some(histogram),
            _ => None,
        }
    }

    /// Returns the metrics of each resource in slot order. Drops the metrics of slots without a resource.
    pub fn into_resources(
        self,
        resource: impl Fn(Slot) -> Option<Arc<Resource>>,
    ) -> impl Iterator<Item = (Slot, ResourceMetrics)> {
        let of = move |(slot, metrics)| Some((slot, ResourceMetrics { resource: resource(slot)?, metrics }));
        self.0.into_iter().filter_map(of)
    }
}
