//! Which columns and rows a metric makes, by its descriptor alone.

use std::num::NonZeroUsize;

use super::{
    change::{Change, Measured, changes},
    layout::Column,
    rows,
    units::{amount, number, percent, rate},
};
use crate::telemetry::{Attributes, Descriptor, Instrument, Metric, Resource, ResourceMetrics, Snapshot, View};

/// Metrics shown together, a row for each set of attributes.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) description: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What a section is made from.
pub(super) struct Input<'a> {
    pub(super) previous: Option<&'a Snapshot>,
    pub(super) current: &'a Snapshot,
    pub(super) cpus: Option<NonZeroUsize>,
}

/// The sections of a resource, in the order of its metrics.
pub(super) fn sections(input: &Input<'_>, resource: &ResourceMetrics) -> Vec<Section> {
    let shown: Vec<&Metric> = resource
        .metrics
        .iter()
        .filter(|metric| metric.descriptor.view == View::Section && !metric.points.is_empty())
        .collect();
    shown
        .chunk_by(|one, other| together(one.descriptor, other.descriptor))
        .map(|metrics| section(input, &resource.resource, metrics))
        .collect()
}

fn together(one: &Descriptor, other: &Descriptor) -> bool {
    let single = |descriptor: &Descriptor| single_column(descriptor).is_some();
    parent(one.name) == parent(other.name) && one.attributes == other.attributes && single(one) && single(other)
}

fn section(input: &Input<'_>, resource: &Resource, metrics: &[&Metric]) -> Section {
    let keys = rows::keys(metrics);
    let mut columns: Vec<Column> = keys.iter().map(|key| Column::text(rows::heading(key.key))).collect();
    for metric in metrics {
        columns.extend(value_columns(metric.descriptor, input.cpus));
    }
    let measured: Vec<Vec<Change<'_>>> =
        metrics.iter().map(|metric| changes(input.previous, input.current.time, resource, metric)).collect();
    let rows = rows::rows(&keys, &measured)
        .into_iter()
        .map(|row| {
            let values = metrics.iter().zip(&row.changes).flat_map(|(metric, change)| match change {
                Some(change) => values(metric.descriptor, change, input.cpus),
                None => value_columns(metric.descriptor, input.cpus).iter().map(|_| "-".to_owned()).collect(),
            });
            row.labels.iter().cloned().chain(values).collect()
        })
        .collect();
    let (title, description) = match metrics {
        [one] => (one.descriptor.name, one.descriptor.description),
        several => several.first().map_or(("", ""), |first| (parent(first.descriptor.name), "")),
    };
    Section { title: short(title).to_owned(), description, columns, rows }
}

/// The heading of a metric that has one column.
fn single_column(descriptor: &Descriptor) -> Option<&'static str> {
    let busy = descriptor.instrument == Instrument::Counter && descriptor.unit == "s";
    let distribution = descriptor.instrument == Instrument::ExponentialHistogram;
    (!busy && !distribution).then(|| descriptor.name.rsplit('.').next().unwrap_or(descriptor.name))
}

fn value_columns(descriptor: &Descriptor, cpus: Option<NonZeroUsize>) -> Vec<Column> {
    if let Some(heading) = single_column(descriptor) {
        return vec![Column::number(heading, 0)];
    }
    let columns: &[(&str, u8)] = match descriptor.instrument {
        Instrument::ExponentialHistogram => {
            &[("rate", 0), ("count", 3), ("p50", 0), ("p90", 2), ("p99", 0), ("max", 1)]
        }
        // Seconds per second: how busy, and of how much.
        _ if cpus.is_some() => &[("ms/s", 0), ("of one CPU", 0), ("of the node", 1)],
        _ => &[("ms/s", 0), ("of one CPU", 0)],
    };
    columns.iter().map(|(heading, spare)| Column::number(heading, *spare)).collect()
}

/// The cells of [`value_columns`].
fn values(descriptor: &Descriptor, change: &Change<'_>, cpus: Option<NonZeroUsize>) -> Vec<String> {
    let unknown = || "-".to_owned();
    match &change.value {
        Measured::Distribution(histogram) => {
            let quantile = |q| histogram.quantile(q).map_or_else(unknown, |value| amount(value, descriptor.unit));
            let rate = change.per_second().map_or_else(unknown, |rate| format!("{}/s", number(rate)));
            [rate, number(histogram.count() as f64)].into_iter().chain([0.5, 0.9, 0.99, 1.0].map(quantile)).collect()
        }
        Measured::Growth { .. } if descriptor.unit == "s" => {
            let share = change.per_second();
            let shown = |show: &dyn Fn(f64) -> String| share.map_or_else(unknown, show);
            let mut cells = vec![shown(&|share| number(share * 1000.0)), shown(&percent)];
            cells.extend(cpus.map(|cpus| shown(&|share| percent(share / cpus.get() as f64))));
            cells
        }
        Measured::Growth { .. } => {
            vec![change.per_second().map_or_else(unknown, |growth| rate(growth, descriptor.unit))]
        }
        Measured::Level(value) => vec![amount(*value, descriptor.unit)],
    }
}

/// A notice's points that are worth a word.
pub(super) fn notices(input: &Input<'_>, resource: &ResourceMetrics) -> Vec<(String, Vec<String>)> {
    let mut notices = Vec::new();
    for metric in &resource.metrics {
        let View::Notice { normal } = metric.descriptor.view else { continue };
        let said: Vec<String> = changes(input.previous, input.current.time, &resource.resource, metric)
            .iter()
            .filter(|change| !is_normal(change.attributes, normal))
            .filter_map(|change| notice(metric.descriptor, change))
            .collect();
        if !said.is_empty() {
            notices.push((short(metric.descriptor.name).to_owned(), said));
        }
    }
    notices
}

fn is_normal(attributes: &Attributes, normal: &[&str]) -> bool {
    attributes.iter().any(|(_, value)| normal.contains(&value.to_string().as_str()))
}

fn notice(descriptor: &Descriptor, change: &Change<'_>) -> Option<String> {
    let labels: Vec<String> = change.attributes.iter().map(|(_, value)| value.to_string()).collect();
    let value = match &change.value {
        Measured::Growth { to: 0.0, .. } | Measured::Level(0.0) => return None,
        Measured::Growth { by: 0.0, to } => amount(*to, descriptor.unit),
        Measured::Growth { to, .. } => {
            let now =
                change.per_second().map_or_else(String::new, |growth| format!(" ({})", rate(growth, descriptor.unit)));
            format!("{}{now}", amount(*to, descriptor.unit))
        }
        // A state that holds.
        Measured::Level(1.0) if !labels.is_empty() => String::new(),
        Measured::Level(value) => amount(*value, descriptor.unit),
        Measured::Distribution(histogram) if histogram.count() == 0 => return None,
        Measured::Distribution(histogram) => number(histogram.count() as f64),
    };
    Some(format!("{} {value}", labels.join(" ")).trim().to_owned())
}

fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn short(name: &str) -> &str {
    name.strip_prefix("undercurrent.").unwrap_or(name)
}
