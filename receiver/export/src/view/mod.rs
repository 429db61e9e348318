//! The measurements of the last interval, arranged for people: sections with rows and cells, and notices.
//!
//! A view has numbers with units and no layout, so a terminal, a page and a replay can share it. The descriptors of the metrics
//! define sections, columns and units. Only [`overview`] refers to metrics by name.

mod change;
mod estimate;
mod group;
mod input;
mod names;
mod notices;
pub mod overview;
mod own;
mod part;
mod ranking;
mod recent;
mod rows;
mod section;
mod selection;
mod summary;
#[cfg(test)]
mod tests;
mod tree;
mod units;

use std::num::NonZeroUsize;

use self::{
    group::{Share, cells, columns, groups, headline, keys, share},
    input::Input,
    overview::Workload,
    part::{Part, is_busy_time},
};
pub use self::{
    notices::{Notice, Remark, Severity},
    recent::Recent,
    section::{Cell, Column, ColumnKind, Row, Section},
    selection::Selection,
    units::{Quantity, Unit},
};
use crate::{
    telemetry::{self, Snapshot, UnixNanos},
    text::plain,
};

/// The changes between two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The time of the newer snapshot.
    pub time: UnixNanos,
    /// The name of the host, without control characters.
    pub host: Option<String>,
    /// The length of the interval in seconds. `None`: the changes are those since the start.
    pub seconds: Option<f64>,
    /// The workloads with measurements, the node first.
    pub workloads: Vec<Workload>,
    /// The sections, in the order of display.
    pub sections: Vec<Section>,
    /// The most recent slow packets with their steps, the newest first; `None` without any.
    pub slow_packets: Option<Section>,
    /// The sidecar's own cost and exports.
    pub sidecar: Option<Section>,
    /// Losses, refusals and degraded states.
    pub notices: Vec<Notice>,
}

impl View {
    /// Returns the changes between two snapshots, or since the start without a previous one, and the most recent spans.
    /// `cpus` is the node's number of online CPUs, if known: CPU shares are then also shares of the node.
    #[must_use]
    pub fn new(previous: Option<&Snapshot>, current: &Snapshot, recent: &Recent, cpus: Option<NonZeroUsize>) -> Self {
        Self::selected(previous, current, recent, cpus, &Selection::default())
    }

    /// Returns a part of [`Self::new`].
    #[must_use]
    pub fn selected(
        previous: Option<&Snapshot>,
        current: &Snapshot,
        recent: &Recent,
        cpus: Option<NonZeroUsize>,
        selection: &Selection,
    ) -> Self {
        let input = Input::new(previous, current, cpus, selection);
        let host = current.resources.iter().find_map(|resource| resource.resource.attributes.get("host.name"));
        let seconds = |earlier: UnixNanos| current.time.0.saturating_sub(earlier.0) as f64 / 1e9;
        Self {
            time: current.time,
            host: host.map(|host| plain(&host.to_string()).into_owned()),
            seconds: previous.map(|previous| seconds(previous.time)),
            workloads: overview::workloads(&input),
            sections: sections(&input)
                .into_iter()
                .chain(recent.section().and_then(|spans| spans_of(spans, selection)))
                .collect(),
            slow_packets: recent.with_steps().and_then(|spans| spans_of(spans, selection)),
            sidecar: own::section(&input),
            notices: notices::notices(&input, &current.resources),
        }
    }
}

/// Returns the sections of a snapshot in the order of its metrics, with summaries and busy times of workloads first.
fn sections(input: &Input<'_>) -> Vec<Section> {
    use telemetry::View;
    let (mut summaries, mut first, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for group in groups(input.current) {
        let Some(descriptor) = group.first().map(|part| part.descriptor) else { continue };
        if !input.selection.has_metric(descriptor.name) {
            continue;
        }
        match descriptor.view {
            // They are the node's.
            View::Estimate { .. } | View::Sampled { .. } if input.selection.workload.is_some() => {}
            View::Summary(_) => summaries.extend(summary::section(input, descriptor)),
            View::Estimate { .. } => others.extend(estimate::section(input, descriptor)),
            View::Sampled { .. } => others.extend(tree::section(input, descriptor)),
            _ => match of_resources(input, &group) {
                Some((section, true)) => first.push(section),
                Some((section, false)) => others.push(section),
                None => {}
            },
        }
    }
    let mut sections: Vec<Section> = summaries.into_iter().chain(first).chain(others).collect();
    sections.iter_mut().for_each(|section| input.selection.sort(section));
    sections
}

/// Returns the displayed rows of slow packets; `None` without any.
fn spans_of(mut spans: Section, selection: &Selection) -> Option<Section> {
    if selection.without_spans {
        return None;
    }
    spans.retain_workloads(|name| selection.has_workload(name));
    selection.sort(&mut spans);
    (!spans.rows.is_empty()).then_some(spans)
}

/// Returns the section of a group, and true if it has busy times of workloads; `None` without changes.
fn of_resources(input: &Input<'_>, group: &[Part]) -> Option<(Section, bool)> {
    let shares: Vec<Share<'_>> = (0..input.current.resources.len())
        .map(|index| share(input, group, index))
        .filter(|share| share.changes.iter().any(|changes| !changes.is_empty()))
        .collect();
    match shares.as_slice() {
        [] => None,
        [Share { index: 0, .. }] if input.selection.workload.is_some() => None,
        [only @ Share { index: 0, .. }] => Some((of_the_node(input, group, only), false)),
        _ => {
            let is_busy_time = group.iter().any(|part| is_busy_time(part.descriptor));
            Some((ranking::section(input, group, shares), is_busy_time))
        }
    }
}

fn of_the_node(input: &Input<'_>, group: &[Part], share: &Share<'_>) -> Section {
    let keys = keys(group, std::slice::from_ref(share));
    let rows = rows::rows(&keys, &share.changes);
    Section {
        columns: columns(&keys, group, input.cpus),
        rows: rows.iter().map(|series| Row::new(cells(series, group, input.cpus))).collect(),
        ..headline(group)
    }
}
