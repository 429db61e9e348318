//! A metric in a section, with its columns and cells.

use std::num::NonZeroUsize;

use super::{
    change::{Change, Measured},
    section::{Cell, Column},
    units::Quantity,
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
    let several = is_busy_time(descriptor) || descriptor.instrument.is_histogram();
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
        Instrument::ExponentialHistogram | Instrument::Histogram => {
            &[("rate", 0), ("count", 4), ("p50", 1), ("p90", 3), ("p99", 0), ("max", 2)]
        }
        // Seconds per second: a utilization, of one CPU and of the node.
        _ if cpus.is_some() => &[("ms/s", 0), ("of one CPU", 0), ("of the node", 1)],
        _ => &[("ms/s", 0), ("of one CPU", 0)],
    };
    columns.iter().map(|(heading, spare)| Column::number(heading, *spare)).collect()
}

/// Returns the cells for [`value_columns`].
pub(super) fn values(part: &Part, change: &Change<'_>, cpus: Option<NonZeroUsize>) -> Vec<Cell> {
    let descriptor = part.descriptor;
    match &change.value {
        Measured::Distribution(histogram) => {
            let quantile =
                |q| Cell::optional(histogram.quantile(q).map(|value| Quantity::amount(value, descriptor.unit)));
            if part.heading.is_some() {
                return [0.5, 0.99].map(quantile).into();
            }
            let rate = Cell::optional(change.per_second().map(|rate| Quantity::rate(rate, "1")));
            let count = Cell::Number(Quantity::number(histogram.count() as f64));
            [rate, count].into_iter().chain([0.5, 0.9, 0.99, 1.0].map(quantile)).collect()
        }
        Measured::Growth { .. } if descriptor.unit == "s" => {
            let share = change.per_second();
            let of = |quantity: &dyn Fn(f64) -> Quantity| Cell::optional(share.map(quantity));
            let mut cells = vec![of(&|share| Quantity::number(share * 1000.0)), of(&Quantity::share)];
            cells.extend(cpus.map(|cpus| of(&|share| Quantity::share(share / cpus.get() as f64))));
            cells
        }
        Measured::Growth { .. } => {
            vec![Cell::optional(change.per_second().map(|growth| Quantity::rate(growth, descriptor.unit)))]
        }
        Measured::Level(value) => vec![Cell::Number(Quantity::amount(*value, descriptor.unit))],
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
        _ if is_busy_time(descriptor) => format!("{} ms/s", Quantity::number(load * 1000.0)),
        Instrument::ExponentialHistogram | Instrument::Histogram => Quantity::rate(load, "1").to_string(),
        Instrument::Counter => Quantity::rate(load, descriptor.unit).to_string(),
        Instrument::UpDownCounter | Instrument::Gauge => Quantity::amount(load, descriptor.unit).to_string(),
    }
}
