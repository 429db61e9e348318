//! Groups of metrics that share a section, and the shares of resources in them.

use std::num::NonZeroUsize;

use super::{
    change::Change,
    input::Input,
    part::{Part, single_column, value_columns, values},
    rows,
    section::{Cell, Column, Section, parent, short},
};
use crate::telemetry::{AttributeKey, Data, Descriptor, Metric, Side, Snapshot, View};

/// Metrics that share a section.
pub(super) type Group = Vec<Part>;

/// A resource's part of a section.
pub(super) struct Share<'a> {
    /// The index of the resource in the snapshot; the node has index 0.
    pub(super) index: usize,
    /// The changes of each metric in the section.
    pub(super) changes: Vec<Vec<Change<'a>>>,
}

/// Groups the metrics that have values in any resource, in the order of first appearance.
pub(super) fn groups(snapshot: &Snapshot) -> Vec<Group> {
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

/// Returns the changes of a group's metrics on a resource.
pub(super) fn share<'a>(input: &Input<'a>, group: &[Part], index: usize) -> Share<'a> {
    let resource = &input.current.resources[index];
    let of = |part: &Part| {
        let mut changes = input.changes(resource, part.descriptor.name);
        changes.retain(|change| part.shows(change));
        changes
    };
    Share { index, changes: group.iter().map(of).collect() }
}

/// Returns a section with its title and without rows.
pub(super) fn headline(group: &[Part]) -> Section {
    let (title, description) = match group {
        [Part { descriptor, .. }] | [Part { descriptor, heading: Some(_), .. }, ..] => {
            (descriptor.name, descriptor.description)
        }
        several => several.first().map_or(("", ""), |first| (parent(first.descriptor.name), "")),
    };
    Section { title: short(title).to_owned(), description, ..Section::default() }
}

/// Returns the attributes that distinguish the rows of some resources.
pub(super) fn keys(group: &[Part], shares: &[Share<'_>]) -> Vec<&'static AttributeKey> {
    let attributes = group.first().map_or(&[][..], |first| first.descriptor.attributes);
    rows::keys(attributes, shares.iter().flat_map(|share| &share.changes).flatten())
}

/// Returns the columns of attributes and values.
pub(super) fn columns(keys: &[&AttributeKey], group: &[Part], cpus: Option<NonZeroUsize>) -> Vec<Column> {
    let labels = keys.iter().map(|key| Column::label(rows::heading(key.key)));
    labels.chain(group.iter().flat_map(|part| value_columns(part, cpus))).collect()
}

/// Returns the cells for [`columns`].
pub(super) fn cells(series: &rows::Series<'_>, group: &[Part], cpus: Option<NonZeroUsize>) -> Vec<Cell> {
    let values = group.iter().zip(&series.changes).flat_map(|(part, change)| match change {
        Some(change) => values(part, change, cpus),
        None => value_columns(part, cpus).iter().map(|_| Cell::Missing).collect(),
    });
    series.labels.iter().cloned().chain(values).collect()
}
