//! Sections of several resources: busiest first, without idle ones, and the others in one line.

use super::{
    cells::{Part, load, single_column, total},
    layout::Column,
    names::is_overflow,
    rows::{self, Row},
    section::{Input, Section, Share, cells, columns, headline, keys, short},
};

/// The number of workloads with rows.
const BUSIEST: usize = 8;

/// Returns the section of a group of metrics that several resources have.
pub(super) fn section(input: &Input<'_>, group: &[Part], shares: Vec<Share<'_>>) -> Section {
    let (shown, rest) = ranked(input, shares);
    let keys = keys(group, &shown);
    let mut all = vec![Column::name("workload"), Column { spare: 5, ..Column::text("kind") }];
    all.extend(columns(&keys, group, input.cpus));
    let mut lines = Vec::new();
    for share in &shown {
        let name = &input.names[share.place];
        let rows = rows::rows(&keys, &share.changes).into_iter().filter(is_busy);
        // Only the first row of a workload has its name, so that its start is easy to find.
        let names = std::iter::once([name.text.as_str(), name.kind]).chain(std::iter::repeat(["", ""]));
        lines.extend(names.zip(rows).map(|(name, row)| {
            name.into_iter().map(str::to_owned).chain(cells(&row, group, input.cpus)).collect::<Vec<_>>()
        }));
    }
    let rest = if shown.iter().all(|share| share.place == 0) {
        Some("no workload had any".to_owned())
    } else {
        (!rest.is_empty()).then(|| remainder(group, &rest))
    };
    Section { columns: all, rows: lines, rest, ..headline(group) }
}

/// Splits the active resources, busiest first, into those with rows and the others. Only single workloads get
/// rows.
pub(super) fn ranked<'a>(input: &Input<'_>, shares: Vec<Share<'a>>) -> (Vec<Share<'a>>, Vec<Share<'a>>) {
    let is_one = |share: &Share<'_>| {
        let resource = &input.current.resources[share.place].resource;
        share.place != 0 && !is_overflow(&resource.attributes)
    };
    let busy = shares.into_iter().filter(|share| share.changes.iter().flatten().any(|change| !change.is_idle()));
    let mut ranked: Vec<(f64, Share<'a>)> = busy.map(|share| (share.load(), share)).collect();
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut workloads = 0;
    ranked.into_iter().map(|(_, share)| share).partition(|share| {
        let is_one = is_one(share);
        workloads += usize::from(is_one);
        !is_one || workloads <= BUSIEST
    })
}

impl Share<'_> {
    /// Returns the load in the first column of values.
    pub(super) fn load(&self) -> f64 {
        self.changes.first().map_or(0.0, |changes| load(changes))
    }
}

fn is_busy(row: &Row<'_>) -> bool {
    row.changes.iter().flatten().any(|change| !change.is_idle())
}

fn remainder(group: &[Part], rest: &[Share<'_>]) -> String {
    let workloads = if rest.len() == 1 { "workload" } else { "workloads" };
    let load: f64 = rest.iter().map(Share::load).sum();
    let together = match group {
        [one] => total(one.descriptor, load),
        [Part { descriptor, .. }, ..] => {
            let name = single_column(descriptor).unwrap_or_else(|| short(descriptor.name));
            format!("{name} {}", total(descriptor, load))
        }
        [] => String::new(),
    };
    format!("and {} more {workloads}: {together}", rest.len())
}
