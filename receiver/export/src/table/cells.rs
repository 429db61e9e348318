//! The columns and cells of a metric.

use std::num::NonZeroUsize;

use super::{
    change::{Change, Measured},
    layout::Column,
    units::{amount, number, percent, rate},
};
use crate::telemetry::{Descriptor, Instrument, Value};

/// A metric in a section.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) descriptor: &'static Descriptor,
    /// The heading of the metric in a section of several metrics.
    pub(super) heading: Option<&'static str>,
    /// The attributes that select the displayed points.
    pub(super) of: &'static [(&'static str, &'static str)],
}

impl Part {
    /// Returns a part with all points of a metric.
    pub(super) const fn whole(descriptor: &'static Descriptor) -> Self {
        Self { descriptor, heading: None, of: &[] }
    }

    /// Returns true if the point of a change is displayed.
    pub(super) fn shows(&self, change: &Change<'_>) -> bool {
        self.of.iter().all(|(key, value)| change.attributes.get(key) == Some(&Value::from(*value)))
    }
}

/// Returns true if the metric is a busy time: its unit is seconds per second.
pub(super) fn is_busy_time(descriptor: &Descriptor) -> bool {
    descriptor.instrument == Instrument::Counter && descriptor.unit == "s"
}

/// Returns the heading of a metric with a single column.
pub(super) fn single_column(descriptor: &Descriptor) -> Option<&'static str> {
    let several = is_busy_time(descriptor) || descriptor.instrument == Instrument::ExponentialHistogram;
    (!several).then(|| descriptor.name.rsplit('.').next().unwrap_or(descriptor.name))
}

/// Returns the columns of a metric.
pub(super) fn value_columns(part: &Part, cpus: Option<NonZeroUsize>) -> Vec<Column> {
    let descriptor = part.descriptor;
    if let Some(heading) = part.heading {
        return [("p50", 1), ("p99", 0)].map(|(of, spare)| Column::number(&format!("{heading} {of}"), spare)).into();
    }
    if let Some(heading) = single_column(descriptor) {
        return vec![Column::number(heading, 0)];
    }
    let columns: &[(&str, u8)] = match descriptor.instrument {
        Instrument::ExponentialHistogram => {
            &[("rate", 0), ("count", 4), ("p50", 1), ("p90", 3), ("p99", 0), ("max", 2)]
        }
        // Seconds per second: a utilization, of one CPU and of the node.
        _ if cpus.is_some() => &[("ms/s", 0), ("of one CPU", 0), ("of the node", 1)],
        _ => &[("ms/s", 0), ("of one CPU", 0)],
    };
    columns.iter().map(|(heading, spare)| Column::number(heading, *spare)).collect()
}

/// Returns the cells for [`value_columns`].
pub(super) fn values(part: &Part, change: &Change<'_>, cpus: Option<NonZeroUsize>) -> Vec<String> {
    let descriptor = part.descriptor;
    let unknown = || "-".to_owned();
    match &change.value {
        Measured::Distribution(histogram) => {
            let quantile = |q| histogram.quantile(q).map_or_else(unknown, |value| amount(value, descriptor.unit));
            if part.heading.is_some() {
                return [0.5, 0.99].map(quantile).into();
            }
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

/// Returns the sum of several points in the metric's first column: growth or events per second, or current values.
pub(super) fn load(changes: &[Change<'_>]) -> f64 {
    let of = |change: &Change<'_>| match change.value {
        Measured::Level(value) => value,
        _ => change.per_second().unwrap_or(0.0),
    };
    changes.iter().map(of).sum()
}

/// Formats a [`load`] with its unit.
pub(super) fn total(descriptor: &Descriptor, load: f64) -> String {
    match descriptor.instrument {
        _ if is_busy_time(descriptor) => format!("{} ms/s", number(load * 1000.0)),
        Instrument::ExponentialHistogram => format!("{}/s", number(load)),
        Instrument::Counter => rate(load, descriptor.unit),
        Instrument::UpDownCounter | Instrument::Gauge => amount(load, descriptor.unit),
    }
}
