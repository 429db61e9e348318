//! The rows of a section: one for each set of attributes, in the order of the descriptor's values. Counts by CPU
//! have one row for the sum and one for each of the busiest CPUs.

use std::collections::BTreeMap;

use super::{
    change::{Change, Measured},
    section::Cell,
};
use crate::{
    telemetry::{AttributeKey, Attributes, Value},
    text::plain,
};

/// The semantic conventions' attribute for a CPU.
pub(super) const CPU: &str = "cpu.logical_number";
/// The number of CPUs with a row.
const BUSIEST: usize = 8;

/// A row of changes, with its attributes for the columns of [`keys`], and the change of each metric of the section.
pub(super) struct Series<'a> {
    pub(super) labels: Vec<Cell>,
    pub(super) changes: Vec<Option<Change<'a>>>,
}

/// Returns the attributes of any of the points, in the descriptor's order with the CPU last.
pub(super) fn keys<'a, 'b: 'a>(
    attributes: &'static [AttributeKey],
    changes: impl Iterator<Item = &'a Change<'b>> + Clone,
) -> Vec<&'static AttributeKey> {
    let used = |key: &&AttributeKey| changes.clone().any(|change| change.attributes.get(key.key).is_some());
    let mut keys: Vec<&'static AttributeKey> = attributes.iter().filter(used).collect();
    keys.sort_by_key(|key| key.key == CPU);
    keys
}

/// Returns the heading for an attribute: the last significant part of its key.
pub(super) fn heading(key: &'static str) -> &'static str {
    let says_something = |part: &&str| !matches!(*part, "name" | "id" | "number" | "logical_number");
    key.rsplit('.').find(says_something).unwrap_or(key)
}

/// The sort key of a row: the position of a known value in the catalogue, then the value. A missing value sorts
/// first.
type GroupValue = (usize, Option<Value>);
type Members<'a> = Vec<(GroupValue, Vec<Option<Change<'a>>>)>;

/// Returns the rows of a section. `measured` holds the changes of each metric.
pub(super) fn rows<'a>(keys: &[&AttributeKey], measured: &[Vec<Change<'a>>]) -> Vec<Series<'a>> {
    let by_cpu = keys.iter().any(|key| key.key == CPU);
    let groups: Vec<&AttributeKey> = keys.iter().copied().filter(|key| key.key != CPU).collect();
    let mut grouped: BTreeMap<Vec<GroupValue>, BTreeMap<GroupValue, Vec<Option<Change<'a>>>>> = BTreeMap::new();
    for (n, changes) in measured.iter().enumerate() {
        for change in changes {
            let group = groups.iter().map(|key| group_value(key, change.attributes)).collect();
            let cpu = (0, change.attributes.get(CPU).cloned());
            let cells = grouped.entry(group).or_default().entry(cpu).or_insert_with(|| empty(measured.len()));
            // Points that differ only in hidden attributes are added.
            match &mut cells[n] {
                Some(known) => known.add(change),
                none => *none = Some(change.copy()),
            }
        }
    }
    let mut rows = Vec::new();
    for (group, members) in grouped {
        let labels: Vec<Cell> = group.iter().map(|(_, value)| label(value.as_ref())).collect();
        let members: Members<'a> = members.into_iter().collect();
        if !by_cpu {
            rows.extend(members.into_iter().map(|(_, changes)| Series { labels: labels.clone(), changes }));
            continue;
        }
        let with_cpu = |cpu: Cell| labels.iter().cloned().chain([cpu]).collect();
        rows.push(Series { labels: with_cpu(Cell::label("all")), changes: sum(&members) });
        for ((_, cpu), changes) in busiest(members) {
            rows.push(Series { labels: with_cpu(label(cpu.as_ref())), changes });
        }
    }
    rows
}

fn group_value(key: &AttributeKey, attributes: &Attributes) -> GroupValue {
    let value = attributes.get(key.key);
    let known = value.and_then(|value| key.known().into_iter().position(|known| *value == Value::from(known)));
    let position = if value.is_none() { 0 } else { known.map_or(usize::MAX, |position| position + 1) };
    (position, value.cloned())
}

fn label(value: Option<&Value>) -> Cell {
    value.map_or(Cell::Missing, |value| Cell::Label(text(value)))
}

/// Returns the value of an attribute without control characters.
pub(super) fn text(value: &Value) -> String {
    plain(&value.to_string()).into_owned()
}

fn empty<'a>(metrics: usize) -> Vec<Option<Change<'a>>> {
    std::iter::repeat_with(|| None).take(metrics).collect()
}

/// Returns the sum of the members for each metric. Only sums and distributions can be added.
fn sum<'a>(members: &Members<'a>) -> Vec<Option<Change<'a>>> {
    let metrics = members.first().map_or(0, |(_, changes)| changes.len());
    let total = |n: usize| {
        let changes = || members.iter().filter_map(|(_, changes)| changes[n].as_ref());
        let grow = |change: &Change<'_>| matches!(change.value, Measured::Growth { .. });
        let mut total = changes().all(grow).then(|| changes().next().map(Change::copy)).flatten()?;
        changes().skip(1).for_each(|change| total.add(change));
        Some(total)
    };
    (0..metrics).map(total).collect()
}

/// Returns the CPUs with the highest first values, in numerical order.
fn busiest(members: Members<'_>) -> Members<'_> {
    let load = |changes: &[Option<Change<'_>>]| changes.first()?.as_ref()?.per_second();
    let loads = members.into_iter().map(|member| {
        let load = load(&member.1).unwrap_or(0.0);
        (member, load)
    });
    busiest_of(loads.collect())
}

/// Returns the CPUs with the highest loads in their given order.
pub(super) fn busiest_of<T>(loads: Vec<(T, f64)>) -> Vec<T> {
    let mut numbered: Vec<_> = loads.into_iter().enumerate().collect();
    numbered.sort_by(|(_, (_, one)), (_, (_, other))| other.total_cmp(one));
    numbered.truncate(BUSIEST);
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, (cpu, _))| cpu).collect()
}
