//! Losses, refusals and degraded states: one line for each metric that reports one.

use super::{
    change::{Change, Measured},
    section::{Input, short},
    units::{amount, number, rate},
};
use crate::{
    telemetry::{Attributes, Descriptor, ResourceMetrics, View},
    text::plain,
};

/// Returns the titles of notices, each with its reportable points.
pub(super) fn notices<'a>(input: &Input<'a>, resource: &'a ResourceMetrics) -> Vec<(String, Vec<String>)> {
    let mut notices = Vec::new();
    for metric in &resource.metrics {
        let is_notice = |attributes: &Attributes| match metric.descriptor.view {
            View::Notice { normal } => !is_normal(attributes, normal),
            View::Failures => attributes.get("error.type").is_some(),
            _ => false,
        };
        let said: Vec<String> = input
            .changes(resource, metric.descriptor.name)
            .iter()
            .filter(|change| is_notice(change.attributes))
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
    let labels: Vec<String> = change.attributes.iter().map(|(_, value)| plain(&value.to_string()).into()).collect();
    let value = match &change.value {
        Measured::Growth { to: 0.0, .. } | Measured::Level(0.0) => return None,
        Measured::Growth { by: 0.0, to } => amount(*to, descriptor.unit),
        Measured::Growth { to, .. } => {
            let now =
                change.per_second().map_or_else(String::new, |growth| format!(" ({})", rate(growth, descriptor.unit)));
            format!("{}{now}", amount(*to, descriptor.unit))
        }
        // A state that is active.
        Measured::Level(1.0) if !labels.is_empty() => String::new(),
        Measured::Level(value) => amount(*value, descriptor.unit),
        Measured::Distribution(histogram) if histogram.count() == 0 => return None,
        Measured::Distribution(histogram) => number(histogram.count() as f64),
    };
    Some(format!("{} {value}", labels.join(" ")).trim().to_owned())
}
