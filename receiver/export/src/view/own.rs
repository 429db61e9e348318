//! The sidecar's own metrics.

use super::{
    change::{Change, Measured},
    input::Input,
    rows::text,
    section::{Cell, Column, Row, Section, short},
    units::Quantity,
};
use crate::telemetry::{Descriptor, Value, View};

/// The attribute of estimates. Hidden metrics with it are errors of other figures.
const EVENT: &str = "undercurrent.network.event";

/// Returns a row for each point of the node that no other section shows; `None` without any.
pub(super) fn section(input: &Input<'_>) -> Option<Section> {
    let node = input.current.resources.first()?;
    let is_own = |descriptor: &Descriptor| {
        let is_error = descriptor.attributes.iter().any(|attribute| attribute.key == EVENT);
        matches!(descriptor.view, View::Hidden | View::Failures) && !is_error
    };
    let own = node.metrics.iter().filter(|metric| is_own(metric.descriptor));
    let rows: Vec<Row> = own
        .flat_map(|metric| {
            let changes = input.changes(node, metric.descriptor.name);
            changes.iter().map(|change| row(metric.descriptor, change)).collect::<Vec<_>>()
        })
        .collect();
    (!rows.is_empty()).then(|| Section {
        title: "sidecar".to_owned(),
        description: "The cost of the sidecar, and its exports.",
        columns: vec![
            Column::label("metric"),
            Column::label("of"),
            Column::number("value", 0),
            Column::number("per second", 0),
        ],
        rows,
        rest: None,
    })
}

fn row(descriptor: &'static Descriptor, change: &Change<'_>) -> Row {
    let labels: Vec<String> = change.attributes.iter().map(|(_, value): (_, &Value)| text(value)).collect();
    let value = match &change.value {
        Measured::Growth { to: value, .. } | Measured::Level(value) => Quantity::amount(*value, descriptor.unit),
        Measured::Distribution(histogram) => Quantity::number(histogram.count() as f64),
    };
    let rate = change.per_second().map(|rate| Quantity::rate(rate, descriptor.unit));
    Row::new(vec![
        Cell::label(short(descriptor.name)),
        Cell::label(labels.join(" ")),
        Cell::Number(value),
        Cell::optional(rate),
    ])
}
