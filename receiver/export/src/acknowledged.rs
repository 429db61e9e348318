//! The last state of each series that a collector has acknowledged, for metrics with delta temporality.
//!
//! A point covers the time since its series was last acknowledged. A snapshot that was replaced or refused is therefore part of
//! the next one, and no count is lost. A request whose answer was lost is sent again, so the collector may count it twice.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    form::{Form, Temporality},
    telemetry::{
        Attributes, Data, ExponentialHistogram, Metric, Point, Resource, ResourceMetrics, Snapshot, UnixNanos, Value,
    },
};

/// A point, with its metric and resource.
pub(crate) type Measured<'a> = (&'a ResourceMetrics, &'a Metric, &'a Point);

/// The index of a point in a snapshot: those of its resource, of its metric, and its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointIndex {
    pub(crate) resource: u32,
    pub(crate) metric: u32,
    pub(crate) point: u32,
}

impl PointIndex {
    /// Returns the point, with its metric and resource.
    fn point(self, snapshot: &Snapshot) -> Option<Measured<'_>> {
        let resource = snapshot.resources.get(self.resource as usize)?;
        let metric = resource.metrics.get(self.metric as usize)?;
        Some((resource, metric, metric.points.get(self.point as usize)?))
    }
}

/// The form of metrics for one collector, with the state that it has acknowledged. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct CollectorState {
    pub(crate) form: Form,
    acknowledged: Arc<Mutex<Acknowledged>>,
}

impl CollectorState {
    pub(super) fn new(form: Form) -> Self {
        Self { form, acknowledged: Arc::default() }
    }

    /// Returns the acknowledged state.
    pub(crate) fn acknowledged(&self) -> MutexGuard<'_, Acknowledged> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets series that have ended. No request of the snapshot follows.
    pub(super) fn finish(&self, snapshot: &Snapshot) {
        if self.form.temporality != Temporality::Cumulative {
            self.acknowledged().forget(&snapshot.resources, snapshot.time);
        }
    }

    /// Records that the collector has these points of a snapshot.
    pub(super) fn acknowledge(&self, snapshot: &Snapshot, points: &[PointIndex]) {
        let mut acknowledged = self.acknowledged();
        let points = points.iter().filter_map(|index| index.point(snapshot));
        points
            .filter(|(_, metric, _)| self.form.is_delta(metric.descriptor.instrument))
            .for_each(|point| acknowledged.add(point, snapshot.time));
    }
}

/// The acknowledged states, by the identity of the resource, the metric and the attributes of the point.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(BTreeMap<Identity, BTreeMap<&'static str, BTreeMap<Attributes, State>>>);

/// The identity of a resource. Other attributes may change, for example when the name of a container becomes known.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Instance(Value),
    /// All attributes, for a resource without an instance id.
    Attributes(Attributes),
}

/// The acknowledged state of a series.
#[derive(Debug)]
struct State {
    /// The start time of the series. A series with another one began again from zero.
    start: UnixNanos,
    /// The time up to which the collector has the measurements.
    time: UnixNanos,
    /// The time of the last snapshot with the series.
    seen: UnixNanos,
    data: Data,
}

/// Nanoseconds after which an absent series counts as ended. A shorter absence can be a signal that could not be read.
const ABSENCE: u64 = 3_600_000_000_000;

impl Identity {
    fn new(resource: &Arc<Resource>) -> Self {
        match resource.attributes.get("service.instance.id") {
            Some(id) => Self::Instance(id.clone()),
            None => Self::Attributes(resource.attributes.clone()),
        }
    }
}

impl Acknowledged {
    /// Returns the start time and the measurements of a point since its series was last acknowledged. Returns `None` for the end of
    /// a series, which has no measurements.
    pub(crate) fn since<'a>(&self, (resource, metric, point): Measured<'a>) -> Option<(UnixNanos, Cow<'a, Data>)> {
        if point.data == Data::NoRecordedValue {
            return None;
        }
        let series =
            self.0.get(&Identity::new(&resource.resource)).and_then(|metrics| metrics.get(metric.descriptor.name));
        let state = series.and_then(|series| series.get(&point.attributes));
        let difference = state.filter(|state| state.start == point.start).and_then(|state| {
            difference(&point.data, &state.data).map(|difference| (state.time, Cow::Owned(difference)))
        });
        Some(difference.unwrap_or((point.start, Cow::Borrowed(&point.data))))
    }

    /// Records the state of a point, at the time of its snapshot.
    fn add(&mut self, (resource, metric, point): Measured<'_>, time: UnixNanos) {
        let metrics = self.0.entry(Identity::new(&resource.resource)).or_default();
        let series = metrics.entry(metric.descriptor.name).or_default();
        let state = State { start: point.start, time, seen: time, data: without_exemplars(&point.data) };
        match series.get_mut(&point.attributes) {
            Some(last) => *last = state,
            None => drop(series.insert(point.attributes.clone(), state)),
        }
    }

    /// Removes the series that no snapshot has contained for [`ABSENCE`]. `resources` are those of a snapshot.
    fn forget(&mut self, resources: &[ResourceMetrics], time: UnixNanos) {
        for resource in resources {
            let Some(metrics) = self.0.get_mut(&Identity::new(&resource.resource)) else { continue };
            for metric in &resource.metrics {
                let Some(series) = metrics.get_mut(metric.descriptor.name) else { continue };
                let seen = |point: &Point| series.get_mut(&point.attributes).map(|state| state.seen = time);
                metric.points.iter().map(seen).for_each(drop);
            }
        }
        let limit = UnixNanos(time.0.saturating_sub(ABSENCE));
        self.0.retain(|_, metrics| {
            metrics.retain(|_, series| {
                series.retain(|_, state| state.seen >= limit);
                !series.is_empty()
            });
            !metrics.is_empty()
        });
    }
}

/// Returns the growth of a value; `None` if it decreased or changed its type.
fn difference(now: &Data, before: &Data) -> Option<Data> {
    match (now, before) {
        (Data::Integer(now), Data::Integer(before)) => now.checked_sub(*before).filter(|n| *n >= 0).map(Data::Integer),
        (Data::Double(now), Data::Double(before)) => (now >= before).then(|| Data::Double(now - before)),
        (Data::Histogram(now), Data::Histogram(before)) => {
            (now.count() >= before.count()).then(|| Data::Histogram(now.since(before)))
        }
        _ => None,
    }
}

/// Returns data without exemplars, which are exported once.
fn without_exemplars(data: &Data) -> Data {
    match data {
        Data::Histogram(histogram) => {
            Data::Histogram(ExponentialHistogram { exemplars: Vec::new(), ..histogram.clone() })
        }
        data => data.clone(),
    }
}
