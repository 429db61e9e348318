//! The metrics of a snapshot in the model of Prometheus: families of series with labels.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use super::names;
use crate::telemetry::{Attributes, Data, Descriptor, Exemplar, Instrument, Point, Resource, Snapshot, Value};

/// A name with its value.
pub(super) type Label = (String, String);

/// Most characters in the labels of an exemplar, by OpenMetrics.
const EXEMPLAR_LIMIT: usize = 128;

/// All series of one metric.
pub(super) struct Family<'a> {
    pub(super) name: String,
    pub(super) descriptor: &'static Descriptor,
    pub(super) series: Vec<Series<'a>>,
}

/// One series with its value.
pub(super) struct Series<'a> {
    pub(super) resource: &'a Arc<Resource>,
    pub(super) labels: Vec<Label>,
    pub(super) point: &'a Point,
}

/// The families of a snapshot, and the attributes of its resources.
pub(super) struct Families<'a> {
    pub(super) families: Vec<Family<'a>>,
    /// The labels of each series of `target_info`.
    pub(super) targets: Vec<Vec<Label>>,
}

impl<'a> Families<'a> {
    /// Groups the points of all resources by metric, because the formats require a metric's series in one place. Leaves out ended series,
    /// which Prometheus ends when they are missing.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let (mut families, mut places): (Vec<Family<'a>>, HashMap<&str, usize>) = Default::default();
        let mut targets = Vec::new();
        for of_resource in &snapshot.resources {
            let resource = &of_resource.resource;
            let (common, mut has_points) = (of_every_series(resource), false);
            for metric in &of_resource.metrics {
                let descriptor = metric.descriptor;
                let points = metric.points.iter().filter(|point| is_value(descriptor.instrument, &point.data));
                let series: Vec<_> = points
                    .map(|point| Series { resource, labels: of_point(&point.attributes, &common), point })
                    .collect();
                if series.is_empty() {
                    continue;
                }
                has_points = true;
                match places.entry(descriptor.name) {
                    Entry::Occupied(place) => families[*place.get()].series.extend(series),
                    Entry::Vacant(place) => {
                        place.insert(families.len());
                        families.push(Family { name: names::metric(descriptor), descriptor, series });
                    }
                }
            }
            targets.extend(has_points.then(|| target(resource)).flatten());
        }
        Self { families, targets }
    }
}

/// Returns true if a point has a value that fits its instrument. Other points are in no export.
fn is_value(instrument: Instrument, data: &Data) -> bool {
    match data {
        Data::Histogram(_) => instrument.is_histogram(),
        Data::Integer(_) => !instrument.is_histogram(),
        Data::Double(number) => number.is_finite() && !instrument.is_histogram(),
        Data::NoRecordedValue => false,
    }
}

/// Returns the labels of a point. An attribute of the point precedes an equal one of the resource.
fn of_point(attributes: &Attributes, common: &[Label]) -> Vec<Label> {
    let mut labels = of_attributes(attributes);
    for (name, value) in common {
        if labels.iter().all(|(existing, _)| existing != name) {
            labels.push((name.clone(), value.clone()));
        }
    }
    labels
}

/// Returns the labels that a resource adds to every series: the promoted attributes, `job` and `instance`.
///
/// A resource without a name has an empty `job`, and a resource without an id an empty `instance`. With `honor_labels`, Prometheus replaces
/// no empty label by the label of the scrape.
fn of_every_series(resource: &Resource) -> Vec<Label> {
    let promoted = resource.attributes.iter().filter(|(key, _)| names::PROMOTED.contains(key));
    let promoted = promoted.map(|(key, value)| (names::label(key), value.to_string()));
    promoted.filter(|(_, value)| !value.is_empty()).chain(identity(resource)).collect()
}

/// Returns `job` and `instance`.
fn identity(resource: &Resource) -> [Label; 2] {
    let text = |key| resource.attributes.get(key).map(Value::to_string).unwrap_or_default();
    let (namespace, name) = (text("service.namespace"), text("service.name"));
    let job = if namespace.is_empty() || name.is_empty() { name } else { format!("{namespace}/{name}") };
    [("job".to_owned(), job), ("instance".to_owned(), text("service.instance.id"))]
}

/// Returns all attributes of a resource as labels of `target_info`. Returns `None` for a resource without a name and an id.
fn target(resource: &Resource) -> Option<Vec<Label>> {
    let identity = identity(resource);
    if identity.iter().all(|(_, value)| value.is_empty()) {
        return None;
    }
    Some(of_attributes(&resource.attributes).into_iter().chain(identity).collect())
}

/// Returns attributes as labels, by name. Prometheus joins the values of attributes that have one label.
fn of_attributes(attributes: &Attributes) -> Vec<Label> {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    let mut labels: Vec<Label> = Vec::with_capacity(sorted.len());
    for (key, value) in sorted {
        let (name, value) = (names::label(key), value.to_string());
        if name.is_empty() || value.is_empty() {
            continue;
        }
        match labels.iter_mut().find(|(existing, _)| *existing == name) {
            Some((_, existing)) => *existing = format!("{existing};{value}"),
            None => labels.push((name, value)),
        }
    }
    labels
}

/// Returns the labels of an exemplar: the ids of its trace and span, and its attributes if they fit.
pub(super) fn of_exemplar(exemplar: &Exemplar) -> Vec<Label> {
    let context = &exemplar.context;
    let ids = [("trace_id", context.trace_id().to_string()), ("span_id", context.span_id().to_string())];
    let mut labels: Vec<Label> = ids.into_iter().map(|(name, id)| (name.to_owned(), id)).collect();
    let others = of_attributes(&exemplar.attributes);
    let size = |labels: &[Label]| -> usize {
        labels.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum()
    };
    if size(&labels) + size(&others) <= EXEMPLAR_LIMIT {
        labels.extend(others);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CPU, LOST, after, node, point, resource_metrics};

    fn labels(labels: &[Label]) -> String {
        labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn series_have_the_labels_of_the_otlp_receiver() {
        let metric = |attributes: Attributes| crate::telemetry::Metric {
            descriptor: &LOST,
            points: vec![
                point(attributes.clone().with("undercurrent.reason", "negative"), Data::Integer(1)),
                point(attributes, Data::NoRecordedValue),
            ],
        };
        let mut snapshot = node(vec![metric(Attributes::new().with("host.name", "of the point"))], after(1));
        let attributes = Attributes::new()
            .with("service.namespace", "shop")
            .with("service.name", "cart")
            .with("service.instance.id", "1234")
            .with("container.name", "cart-1")
            .with("container.image.tags", vec!["a".to_owned()])
            .with("a-b", "one")
            .with("a.b", "two");
        let nameless = Attributes::new().with("undercurrent.workload.cgroup", "/x");
        for attributes in [attributes, nameless] {
            snapshot.resources.push(resource_metrics(attributes, vec![metric(Attributes::new())]));
        }
        let families = Families::of(&snapshot);
        let lines = families.families[0].series.iter().map(|series| labels(&series.labels));
        let all: Vec<String> = lines.chain(families.targets.iter().map(|target| labels(target))).collect();
        insta::assert_snapshot!(all.join("\n"), @"
        host_name=of the point undercurrent_reason=negative job=undercurrent instance=
        undercurrent_reason=negative container_name=cart-1 job=shop/cart instance=1234
        undercurrent_reason=negative undercurrent_workload_cgroup=/x job= instance=
        host_name=node-1 os_type=linux service_name=undercurrent job=undercurrent instance=
        a_b=one;two container_image_tags=[\"a\"] container_name=cart-1 service_instance_id=1234 service_name=cart service_namespace=shop job=shop/cart instance=1234
        ");
    }

    #[test]
    fn a_resource_whose_series_have_ended_is_left_out() {
        let ended = node(
            vec![crate::telemetry::Metric {
                descriptor: &CPU,
                points: vec![point(Attributes::new(), Data::NoRecordedValue)],
            }],
            after(1),
        );
        let Families { families, targets } = Families::of(&ended);
        assert!(families.is_empty() && targets.is_empty());
    }
}
