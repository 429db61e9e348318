//! Helpers for tests of signals.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::Signal;
use crate::{
    telemetry::{Attributes, Data, Descriptor, Metric, Point, Readings, Resource, UnixNanos},
    workloads::Workloads,
};

/// Start time of all measurements.
pub const START: UnixNanos = UnixNanos(1);

/// Returns the exported values of a metric without attributes, in seconds, by slot.
pub fn totals(signal: &mut dyn Signal, workloads: &Workloads, descriptor: &Descriptor) -> BTreeMap<u16, Duration> {
    let mut readings = Readings::default();
    signal.read(workloads, &mut readings).unwrap();
    let nobody = Arc::new(Resource { attributes: Attributes::new() });
    let exported = readings.into_resources(|_| Some(Arc::clone(&nobody)));
    let total = |metrics: &[Metric]| {
        let metric = metrics.iter().find(|metric| std::ptr::eq(metric.descriptor, descriptor))?;
        let [Point { data: Data::Double(seconds), start: START, .. }] = metric.points[..] else { panic!("{metric:?}") };
        Some(Duration::from_secs_f64(seconds))
    };
    exported.filter_map(|(slot, of)| Some((slot.0, total(&of.metrics)?))).collect()
}
