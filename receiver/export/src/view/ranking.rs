//! Sections of several resources: busiest first, without idle ones, and the others in one line.

use super::{
    group::{Share, cells, columns, headline, keys},
    input::Input,
    names::is_overflow,
    part::{Part, load, single_column, total},
    rows::{self, Series},
    section::{Cell, Column, Row, Section, WORKLOAD, short},
};

/// The number of workloads with rows.
const BUSIEST: usize = 8;

/// Returns the section of a group of metrics that several resources have.
pub(super) fn section(input: &Input<'_>, group: &[Part], shares: Vec<Share<'_>>) -> Section {
    let (shown, rest) = ranked(input, shares);
    let keys = keys(group, &shown);
    let mut all = name_columns();
    all.extend(columns(&keys, group, input.cpus));
    let mut lines = Vec::new();
    for share in &shown {
        let name = &input.names[share.index];
        let rows = rows::rows(&keys, &share.changes).into_iter().filter(is_busy);
        // Only the first row of a workload has its name, so that its start is easy to find.
        let first = [Cell::label(&name.text), Cell::label(name.kind)];
        let names = std::iter::once(first).chain(std::iter::repeat([Cell::Repeated, Cell::Repeated]));
        lines.extend(
            names
                .zip(rows)
                .map(|(name, series)| Row::new(name.into_iter().chain(cells(&series, group, input.cpus)).collect())),
        );
    }
    let rest = if shown.iter().all(|share| share.index == 0) {
        Some("no workload had any".to_owned())
    } else {
        (!rest.is_empty()).then(|| remainder(group, &rest))
    };
    Section { columns: all, rows: lines, rest, ..headline(group) }
}

/// Returns the columns that name a workload.
pub(super) fn name_columns() -> Vec<Column> {
    vec![Column::name(WORKLOAD), Column { spare: 5, ..Column::label("kind") }]
}

/// Splits the active resources, busiest first, into those with rows and the others. Only single workloads get
/// rows.
pub(super) fn ranked<'a>(input: &Input<'_>, shares: Vec<Share<'a>>) -> (Vec<Share<'a>>, Vec<Share<'a>>) {
    let is_one = |share: &Share<'_>| {
        let resource = &input.current.resources[share.index].resource;
        share.index != 0 && !is_overflow(&resource.attributes)
    };
    let is_selected = |share: &Share<'_>| input.selection.has_workload(&input.names[share.index].text);
    let selected = shares.into_iter().filter(is_selected);
    let busy = selected.filter(|share| share.changes.iter().flatten().any(|change| !change.is_idle()));
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

fn is_busy(series: &Series<'_>) -> bool {
    series.changes.iter().flatten().any(|change| !change.is_idle())
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
