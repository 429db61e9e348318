//! One row for each workload with figures of several metrics side by side.

use super::{
    change::{Change, Measured},
    group::Share,
    input::Input,
    part::total,
    ranking,
    section::{Cell, Column, Row, Section, short},
    units::Quantity,
};
use crate::telemetry::{Attributes, Descriptor, Figure, FigureKind, Value, View};

/// Returns the section of a metric with figures; `None` if no resource has changes of the metric.
pub(super) fn section(input: &Input<'_>, descriptor: &'static Descriptor) -> Option<Section> {
    let View::Summary(figures) = descriptor.view else { return None };
    let resources = &input.current.resources;
    let share = |index: usize| Share {
        index,
        changes: figures.iter().map(|figure| figure_changes(input, index, figure)).collect(),
    };
    let own = |index: &usize| resources[*index].metrics.iter().any(|metric| metric.descriptor.name == descriptor.name);
    let shares: Vec<Share<'_>> = (0..resources.len()).filter(own).map(share).collect();
    if shares.is_empty() {
        return None;
    }
    let (shown, rest) = ranking::ranked(input, shares);
    let mut columns = ranking::name_columns();
    columns.extend(figures.iter().map(|figure| Column::number(figure.heading, figure.spare)));
    let row = |share: &Share<'_>| {
        let name = &input.names[share.index];
        let growth = |metric: &str| growth(input, share.index, metric);
        let cells = figures.iter().zip(&share.changes).map(|(figure, changes)| cell(figure, changes, &growth));
        Row::new([Cell::label(&name.text), Cell::label(name.kind)].into_iter().chain(cells).collect())
    };
    let rows = shown.iter().map(row).collect();
    let remainder = |load| format!("and {} more: {}", rest.len(), total(descriptor, load));
    let rest = (!rest.is_empty()).then(|| remainder(rest.iter().map(Share::load).sum()));
    Some(Section { title: short(descriptor.name).to_owned(), description: descriptor.description, columns, rows, rest })
}

/// Returns the changes of a figure's points.
fn figure_changes<'a>(input: &Input<'a>, index: usize, figure: &Figure) -> Vec<Change<'a>> {
    let has = |of: &Attributes| figure.attributes.iter().all(|(key, value)| of.get(key) == Some(&Value::from(*value)));
    let mut changes = input.changes(&input.current.resources[index], figure.metric);
    changes.retain(|change| has(change.attributes));
    changes
}

/// Returns the growth of a resource's counter in the last interval; `None` without growth.
fn growth(input: &Input<'_>, index: usize, metric: &str) -> Option<f64> {
    match sum(&input.changes(&input.current.resources[index], metric)) {
        Some(Measured::Growth { by, .. }) => Some(by).filter(|by| *by > 0.0),
        _ => None,
    }
}

/// Returns the sum of several changes; `None` without a change.
fn sum(changes: &[Change<'_>]) -> Option<Measured> {
    let mut changes = changes.iter();
    let mut sum = changes.next()?.copy();
    changes.for_each(|change| sum.add(change));
    Some(sum.value)
}

fn cell(figure: &Figure, changes: &[Change<'_>], growth: &dyn Fn(&str) -> Option<f64>) -> Cell {
    let value = match (figure.kind, sum(changes)) {
        (FigureKind::Rate(unit), Some(_)) => per_second(changes).map(|growth| Quantity::rate(growth, unit)),
        (FigureKind::Share, Some(_)) => per_second(changes).map(Quantity::share),
        (FigureKind::Quantile(quantile, unit), Some(Measured::Distribution(histogram))) => {
            histogram.quantile(quantile).map(|value| Quantity::amount(value, unit))
        }
        (FigureKind::PerGigabyte(unit, bytes), Some(Measured::Growth { by, .. })) => {
            growth(bytes).map(|bytes| Quantity::amount(by / bytes * 1e9, unit))
        }
        _ => None,
    };
    Cell::optional(value)
}

/// Returns the growth per second of several changes; `None` if no interval has passed.
fn per_second(changes: &[Change<'_>]) -> Option<f64> {
    changes.iter().map(Change::per_second).sum()
}
