//! Losses, refusals and degraded states: one notice for each metric that reports one.

use std::fmt;

use super::{
    change::{Change, Measured},
    input::Input,
    rows::text,
    section::short,
    units::Quantity,
};
use crate::telemetry::{Attributes, Descriptor, ResourceMetrics, View};

/// A metric with points to report.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The name of the metric.
    pub title: String,
    /// The severity.
    pub severity: Severity,
    /// The points.
    pub remarks: Vec<Remark>,
}

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Measurements are incomplete: losses, refusals and degraded states.
    Warning,
    /// An output failed.
    Failure,
}

/// A point of a notice. Its text for people is its `Display`.
#[derive(Clone, Debug, PartialEq)]
pub struct Remark {
    /// The values of the attributes, without control characters.
    pub labels: Vec<String>,
    /// The current value; `None` for a state that is active.
    pub total: Option<Quantity>,
    /// The growth per second, if the value grew in the last interval.
    pub rate: Option<Quantity>,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total.map(|total| total.to_string());
        let rate = self.rate.map(|rate| format!("({rate})"));
        let texts: Vec<&str> = self.labels.iter().chain(&total).chain(&rate).map(String::as_str).collect();
        f.write_str(&texts.join(" "))
    }
}

/// Returns the notices of all resources, with the sums of equal points: a workload can have losses of its own.
pub(super) fn notices<'a>(input: &Input<'a>, resources: &'a [ResourceMetrics]) -> Vec<Notice> {
    let mut notices: Vec<Notice> = Vec::new();
    for found in resources.iter().flat_map(|resource| of_resource(input, resource)) {
        match notices.iter_mut().find(|notice| notice.title == found.title) {
            Some(known) => found.remarks.into_iter().for_each(|remark| known.add(remark)),
            None => notices.push(found),
        }
    }
    notices
}

impl Notice {
    fn add(&mut self, remark: Remark) {
        match self.remarks.iter_mut().find(|known| known.labels == remark.labels) {
            Some(known) => {
                known.total = sum(known.total, remark.total);
                known.rate = sum(known.rate, remark.rate);
            }
            None => self.remarks.push(remark),
        }
    }
}

fn sum(one: Option<Quantity>, other: Option<Quantity>) -> Option<Quantity> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Quantity { value: one.value + other.value, ..one }),
        (one, other) => one.or(other),
    }
}

fn of_resource<'a>(input: &Input<'a>, resource: &'a ResourceMetrics) -> Vec<Notice> {
    let mut notices = Vec::new();
    for metric in &resource.metrics {
        let severity = match metric.descriptor.view {
            View::Notice { .. } => Severity::Warning,
            View::Failures => Severity::Failure,
            _ => continue,
        };
        let is_notice = |attributes: &Attributes| match metric.descriptor.view {
            View::Notice { normal } => !is_normal(attributes, normal),
            _ => attributes.get("error.type").is_some(),
        };
        let changes = input.changes(resource, metric.descriptor.name);
        let reported = changes.iter().filter(|change| is_notice(change.attributes));
        let remarks: Vec<Remark> = reported.filter_map(|change| remark(metric.descriptor, change)).collect();
        if !remarks.is_empty() {
            notices.push(Notice { title: short(metric.descriptor.name).to_owned(), severity, remarks });
        }
    }
    notices
}

fn is_normal(attributes: &Attributes, normal: &[&str]) -> bool {
    attributes.iter().any(|(_, value)| normal.contains(&value.to_string().as_str()))
}

fn remark(descriptor: &'static Descriptor, change: &Change<'_>) -> Option<Remark> {
    let labels: Vec<String> = change.attributes.iter().map(|(_, value)| text(value)).collect();
    let amount = |value: f64| Some(Quantity::amount(value, descriptor.unit));
    let (total, rate) = match &change.value {
        Measured::Growth { to: 0.0, .. } | Measured::Level(0.0) => return None,
        Measured::Growth { by: 0.0, to } => (amount(*to), None),
        Measured::Growth { to, .. } => {
            (amount(*to), change.per_second().map(|growth| Quantity::rate(growth, descriptor.unit)))
        }
        // A state that is active.
        Measured::Level(1.0) if !labels.is_empty() => (None, None),
        Measured::Level(value) => (amount(*value), None),
        Measured::Distribution(histogram) if histogram.count() == 0 => return None,
        Measured::Distribution(histogram) => (Some(Quantity::number(histogram.count() as f64)), None),
    };
    Some(Remark { labels, total, rate })
}
