//! Shares that are estimated from samples: imprecise ones are hidden.

use super::{
    cells::Part,
    change::{Change, Measured},
    section::{Input, Share},
};
use crate::telemetry::{Attributes, Descriptor, ResourceMetrics, View};

/// The largest relative standard error of a share in the table.
const LARGEST_ERROR: f64 = 0.2;

/// Keeps the changes with a precise share of their total.
pub(super) fn retain_precise<'a>(
    input: &Input<'a>,
    resource: &'a ResourceMetrics,
    descriptor: &Descriptor,
    changes: &mut Vec<Change<'a>>,
) {
    let View::Sampled { samples, total } = descriptor.view else { return };
    let metric = resource.metrics.iter().find(|metric| metric.descriptor.name == samples);
    let counts = metric.map_or_else(Vec::new, |metric| input.changes(resource, metric));
    let sum = |is_part: &dyn Fn(&Attributes) -> bool| -> f64 {
        counts.iter().filter(|count| is_part(count.attributes)).map(growth).sum()
    };
    changes.retain(|change| {
        let own = sum(&|attributes| attributes == change.attributes);
        let all = sum(&|attributes| attributes.get(total) == change.attributes.get(total));
        own > 0.0 && relative_error(own, all) <= LARGEST_ERROR
    });
}

/// Returns the line about hidden rows of a section; `None` if there are none.
pub(super) fn rest(input: &Input<'_>, group: &[Part], share: &Share<'_>) -> Option<String> {
    let [Part { descriptor, .. }] = group else { return None };
    let View::Sampled { .. } = descriptor.view else { return None };
    let resource = &input.current.resources[share.place];
    let metric = resource.metrics.iter().find(|metric| metric.descriptor.name == descriptor.name)?;
    let grown = input.changes(resource, metric).iter().filter(|change| growth(change) > 0.0).count();
    let hidden = grown.saturating_sub(share.changes.first().map_or(0, Vec::len));
    (hidden > 0).then(|| format!("{hidden} more with a standard error above 20%"))
}

fn growth(change: &Change<'_>) -> f64 {
    if let Measured::Growth { by, .. } = change.value { by } else { 0.0 }
}

/// Returns the standard error of a share, divided by the share, for `own` of `all` samples (a binomial distribution).
fn relative_error(own: f64, all: f64) -> f64 {
    ((1.0 - own / all).max(0.0) / own).sqrt()
}
