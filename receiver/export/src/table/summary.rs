//! One row for each workload with figures of several metrics side by side.

use super::{
    cells::total,
    change::{Change, Measured},
    layout::Column,
    ranking,
    section::{Input, Section, Share, short},
    units::{amount, percent, rate},
};
use crate::telemetry::{Attributes, Descriptor, Figure, FigureKind, Value, View};

/// Returns the section of a metric with figures; `None` if no resource has changes of the metric.
pub(super) fn section(input: &Input<'_>, descriptor: &'static Descriptor) -> Option<Section> {
    let View::Summary(figures) = descriptor.view else { return None };
    let resources = &input.current.resources;
    let share =
        |place: usize| Share { place, changes: figures.iter().map(|figure| of(input, place, figure)).collect() };
    let own = |place: &usize| resources[*place].metrics.iter().any(|metric| metric.descriptor.name == descriptor.name);
    let shares: Vec<Share<'_>> = (0..resources.len()).filter(own).map(share).collect();
    if shares.is_empty() {
        return None;
    }
    let (shown, rest) = ranking::ranked(input, shares);
    let mut columns = vec![Column::name("workload"), Column { spare: 5, ..Column::text("kind") }];
    columns.extend(figures.iter().map(|figure| Column::number(figure.heading, figure.spare)));
    let row = |share: &Share<'_>| {
        let name = &input.names[share.place];
        let growth = |metric: &str| growth(input, share.place, metric);
        let cells = figures.iter().zip(&share.changes).map(|(figure, changes)| cell(figure, changes, &growth));
        [name.text.clone(), name.kind.to_owned()].into_iter().chain(cells).collect()
    };
    let rows = shown.iter().map(row).collect();
    let remainder = |load| format!("and {} more: {}", rest.len(), total(descriptor, load));
    let rest = (!rest.is_empty()).then(|| remainder(rest.iter().map(Share::load).sum()));
    Some(Section { title: short(descriptor.name).to_owned(), description: descriptor.description, columns, rows, rest })
}

/// Returns the changes of a figure's points.
fn of<'a>(input: &Input<'a>, place: usize, figure: &Figure) -> Vec<Change<'a>> {
    let has = |of: &Attributes| figure.attributes.iter().all(|(key, value)| of.get(key) == Some(&Value::from(*value)));
    let mut changes = input.changes(&input.current.resources[place], figure.metric);
    changes.retain(|change| has(change.attributes));
    changes
}

/// Returns the growth of a resource's counter in the last interval; `None` without growth.
fn growth(input: &Input<'_>, place: usize, metric: &str) -> Option<f64> {
    match sum(&input.changes(&input.current.resources[place], metric)) {
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

fn cell(figure: &Figure, changes: &[Change<'_>], growth: &dyn Fn(&str) -> Option<f64>) -> String {
    let value = match (figure.kind, sum(changes)) {
        (FigureKind::Rate(unit), Some(_)) => per_second(changes).map(|growth| rate(growth, unit)),
        (FigureKind::Share, Some(_)) => per_second(changes).map(percent),
        (FigureKind::Quantile(quantile, unit), Some(Measured::Distribution(histogram))) => {
            histogram.quantile(quantile).map(|value| amount(value, unit))
        }
        (FigureKind::PerGigabyte(unit, bytes), Some(Measured::Growth { by, .. })) => {
            growth(bytes).map(|bytes| amount(by / bytes * 1e9, unit))
        }
        _ => None,
    };
    value.unwrap_or_else(|| "-".to_owned())
}

/// Returns the growth per second of several changes; `None` if no interval has passed.
fn per_second(changes: &[Change<'_>]) -> Option<f64> {
    changes.iter().map(Change::per_second).sum()
}
