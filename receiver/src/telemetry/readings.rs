//! What signals yield at one tick, by whom it belongs to.

use std::{collections::BTreeMap, sync::Arc};

use undercurrent_ebpf::abi::workload::Slot;

use super::{Metric, Resource, ResourceMetrics};

/// Metrics by slot, each once.
#[derive(Debug, Default)]
pub struct Readings(BTreeMap<Slot, Vec<Metric>>);

impl Readings {
    /// Adds a metric's points to those of the same metric in the same slot. A metric without points leaves nothing.
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

    /// The metrics by resource, in the order of their slots. What belongs to a slot without a resource is left out.
    pub fn into_resources(
        self,
        resource: impl Fn(Slot) -> Option<Arc<Resource>>,
    ) -> impl Iterator<Item = (Slot, ResourceMetrics)> {
        let of = move |(slot, metrics)| Some((slot, ResourceMetrics { resource: resource(slot)?, metrics }));
        self.0.into_iter().filter_map(of)
    }
}
