//! Groups the metrics of a snapshot into sections by their descriptors and resources.

use std::num::NonZeroUsize;

use super::{
    cells::{Part, is_busy_time, single_column, value_columns, values},
    change::{Change, Earlier, changes},
    estimate,
    layout::Column,
    names::{Name, names},
    ranking,
    rows::{self, Row},
    summary, tree,
};
use crate::telemetry::{AttributeKey, Data, Descriptor, Metric, ResourceMetrics, Side, Snapshot, View};

/// Metrics shown together, with a row for each set of attributes.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) description: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
    /// A line below the rows, about resources without a row.
    pub(super) rest: Option<String>,
}

/// The input of a table.
pub(super) struct Input<'a> {
    pub(super) earlier: Option<Earlier<'a>>,
    pub(super) current: &'a Snapshot,
    pub(super) names: Vec<Name>,
    pub(super) cpus: Option<NonZeroUsize>,
}

impl<'a> Input<'a> {
    pub(super) fn new(previous: Option<&'a Snapshot>, current: &'a Snapshot, cpus: Option<NonZeroUsize>) -> Self {
        Self { earlier: previous.map(Earlier::new), current, names: names(&current.resources), cpus }
    }

    /// Returns the changes of a resource's metric in the last interval; none if the resource lacks the metric.
    pub(super) fn changes(&self, resource: &'a ResourceMetrics, metric: &str) -> Vec<Change<'a>> {
        let metric = resource.metrics.iter().find(|known| known.descriptor.name == metric);
        let changes = |metric| changes(self.earlier.as_ref(), self.current.time, &resource.resource, metric);
        metric.map_or_else(Vec::new, changes)
    }
}

/// A resource's part of a section.
pub(super) struct Share<'a> {
    /// The index of the resource in the snapshot; the node has index 0.
    pub(super) place: usize,
    /// The changes of each metric in the section.
    pub(super) changes: Vec<Vec<Change<'a>>>,
}

/// Metrics that share a section.
type Group = Vec<Part>;

/// Returns the sections of a snapshot in the order of its metrics, with summaries and busy times of workloads first.
pub(super) fn sections(input: &Input<'_>) -> Vec<Section> {
    let (mut summaries, mut first, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for group in groups(input.current) {
        let Some(descriptor) = group.first().map(|part| part.descriptor) else { continue };
        match descriptor.view {
            View::Summary(_) => summaries.extend(summary::section(input, descriptor)),
            View::Estimate { .. } => others.extend(estimate::section(input, descriptor)),
            View::Sampled { .. } => others.extend(tree::section(input, descriptor)),
            _ => match of_resources(input, &group) {
                Some((section, true)) => first.push(section),
                Some((section, false)) => others.push(section),
                None => {}
            },
        }
    }
    summaries.into_iter().chain(first).chain(others).collect()
}

/// Returns the section of a group, and true if it has busy times of workloads; `None` without changes.
fn of_resources(input: &Input<'_>, group: &[Part]) -> Option<(Section, bool)> {
    let shares: Vec<Share<'_>> = (0..input.current.resources.len())
        .map(|place| share(input, group, place))
        .filter(|share| share.changes.iter().any(|changes| !changes.is_empty()))
        .collect();
    match shares.as_slice() {
        [] => None,
        [only @ Share { place: 0, .. }] => Some((of_the_node(input, group, only), false)),
        _ => {
            let is_busy_time = group.iter().any(|part| is_busy_time(part.descriptor));
            Some((ranking::section(input, group, shares), is_busy_time))
        }
    }
}

/// Groups the metrics that have values in any resource, in the order of first appearance.
fn groups(snapshot: &Snapshot) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let present = descriptors(snapshot);
    for descriptor in &present {
        match descriptor.view {
            View::Summary(_) | View::Estimate { .. } | View::Sampled { .. } => {
                groups.push(vec![Part::whole(descriptor)])
            }
            View::Section => {
                let part = Part::whole(descriptor);
                match groups.iter_mut().find(|group| group.iter().all(|known| together(known.descriptor, descriptor))) {
                    Some(group) => group.push(part),
                    None => groups.push(vec![part]),
                }
            }
            View::Beside(sides) => groups.push(beside(descriptor, sides, &present)),
            View::Notice { .. } | View::Failures | View::Hidden => {}
        }
    }
    groups
}

/// Returns the descriptors of metrics with values, without duplicates.
fn descriptors(snapshot: &Snapshot) -> Vec<&'static Descriptor> {
    let has_values = |metric: &&Metric| metric.points.iter().any(|point| point.data != Data::NoRecordedValue);
    let metrics = snapshot.resources.iter().flat_map(|resource| &resource.metrics).filter(has_values);
    let mut present: Vec<&'static Descriptor> = Vec::new();
    for descriptor in metrics.map(|metric| metric.descriptor) {
        if !present.iter().any(|known| known.name == descriptor.name) {
            present.push(descriptor);
        }
    }
    present
}

/// Returns a metric, together with the related metrics that are present.
fn beside(descriptor: &'static Descriptor, sides: &[Side], present: &[&'static Descriptor]) -> Group {
    let other = |side: &Side| {
        let descriptor = present.iter().find(|other| other.name == side.metric)?;
        Some(Part { descriptor, heading: Some(side.heading), of: side.attributes })
    };
    let own = Part { heading: descriptor.name.rsplit('.').next(), ..Part::whole(descriptor) };
    std::iter::once(own).chain(sides.iter().filter_map(other)).collect()
}

fn together(one: &Descriptor, other: &Descriptor) -> bool {
    let single = |descriptor: &Descriptor| single_column(descriptor).is_some();
    parent(one.name) == parent(other.name) && one.attributes == other.attributes && single(one) && single(other)
}

fn share<'a>(input: &Input<'a>, group: &[Part], place: usize) -> Share<'a> {
    let resource = &input.current.resources[place];
    let of = |part: &Part| {
        let mut changes = input.changes(resource, part.descriptor.name);
        changes.retain(|change| part.shows(change));
        changes
    };
    Share { place, changes: group.iter().map(of).collect() }
}

fn of_the_node(input: &Input<'_>, group: &[Part], share: &Share<'_>) -> Section {
    let keys = keys(group, std::slice::from_ref(share));
    let rows = rows::rows(&keys, &share.changes);
    Section {
        columns: columns(&keys, group, input.cpus),
        rows: rows.iter().map(|row| cells(row, group, input.cpus)).collect(),
        ..headline(group)
    }
}

/// Returns a section with its title and without rows.
pub(super) fn headline(group: &[Part]) -> Section {
    let (title, description) = match group {
        [Part { descriptor, .. }] | [Part { descriptor, heading: Some(_), .. }, ..] => {
            (descriptor.name, descriptor.description)
        }
        several => several.first().map_or(("", ""), |first| (parent(first.descriptor.name), "")),
    };
    Section { title: short(title).to_owned(), description, columns: Vec::new(), rows: Vec::new(), rest: None }
}

/// Returns the attributes that distinguish the rows of some resources.
pub(super) fn keys(group: &[Part], shares: &[Share<'_>]) -> Vec<&'static AttributeKey> {
    let attributes = group.first().map_or(&[][..], |first| first.descriptor.attributes);
    rows::keys(attributes, shares.iter().flat_map(|share| &share.changes).flatten())
}

/// Returns the columns of attributes and values.
pub(super) fn columns(keys: &[&AttributeKey], group: &[Part], cpus: Option<NonZeroUsize>) -> Vec<Column> {
    let labels = keys.iter().map(|key| Column::text(rows::heading(key.key)));
    labels.chain(group.iter().flat_map(|part| value_columns(part, cpus))).collect()
}

/// Returns the cells for [`columns`].
pub(super) fn cells(row: &Row<'_>, group: &[Part], cpus: Option<NonZeroUsize>) -> Vec<String> {
    let values = group.iter().zip(&row.changes).flat_map(|(part, change)| match change {
        Some(change) => values(part, change, cpus),
        None => value_columns(part, cpus).iter().map(|_| "-".to_owned()).collect(),
    });
    row.labels.iter().cloned().chain(values).collect()
}

fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Returns a metric's name without the common prefix.
pub(super) fn short(name: &str) -> &str {
    name.strip_prefix("undercurrent.").unwrap_or(name)
}
