//! A tree of shares that are estimated from samples, by CPU if the points have CPUs: totals, and below each total its
//! precise shares and the rest.

use std::collections::BTreeMap;

use super::{
    estimate::relative_error,
    group::headline,
    input::{Growths, Input},
    part::Part,
    rows::{CPU, busiest_of, heading, text},
    section::{Cell, Column, Row, Section},
    units::Quantity,
};
use crate::telemetry::{AttributeKey, Attributes, Descriptor, Value, View};

/// The largest relative standard error of a share in the table.
const LARGEST_ERROR: f64 = 0.2;

/// The time and the variance of the totals.
struct Tree<'a> {
    time: Growths<'a>,
    variance: Growths<'a>,
    /// The displayed CPUs.
    cpus: Vec<Value>,
}

/// Selects points.
type IsPart<'a> = dyn Fn(&Attributes) -> bool + 'a;

/// Returns the section of a sampled metric; `None` if nothing was sampled in the interval.
pub(super) fn section(input: &Input<'_>, descriptor: &'static Descriptor) -> Option<Section> {
    let View::Sampled { variance, total } = descriptor.view else { return None };
    let node = input.current.resources.first()?;
    let (time, variance) = (Growths::new(input, node, descriptor.name), Growths::everywhere(input, variance));
    let is_part = |key: &&AttributeKey| key.key != total && key.key != CPU;
    let parts: Vec<&AttributeKey> = descriptor.attributes.iter().filter(is_part).collect();
    let tree = Tree { cpus: cpus(&time), time, variance };
    let known = descriptor.attributes.iter().find(|key| key.key == total)?.known();
    let rows: Vec<_> = known.into_iter().flat_map(|name| tree.branch(total, name, &parts)).collect();
    (!rows.is_empty()).then(|| Section {
        columns: tree.columns(heading(total)),
        rows,
        ..headline(&[Part::whole(descriptor)])
    })
}

/// Returns the busiest CPUs with points, in numerical order; none if there is only one.
fn cpus(time: &Growths<'_>) -> Vec<Value> {
    let mut loads: BTreeMap<&Value, f64> = BTreeMap::new();
    for cpu in time.attributes().filter_map(|attributes| attributes.get(CPU)) {
        loads.entry(cpu).or_insert_with(|| time.sum(|attributes| attributes.get(CPU) == Some(cpu)));
    }
    if loads.len() < 2 { Vec::new() } else { busiest_of(loads.into_iter().collect()).into_iter().cloned().collect() }
}

impl Tree<'_> {
    fn columns(&self, total: &str) -> Vec<Column> {
        let fixed = [Column::label(total), Column::number("ms/s", 0), Column::number("error", 0)];
        let of_cpu =
            |(n, cpu): (usize, &Value)| Column::number(&format!("CPU {cpu}"), u8::try_from(n + 2).unwrap_or(u8::MAX));
        fixed
            .into_iter()
            .chain([Column::number("of one CPU", 1)])
            .chain(self.cpus.iter().enumerate().map(of_cpu))
            .collect()
    }

    /// Returns the rows of a total: the total, its precise shares in descending order, and the rest.
    fn branch(&self, total: &'static str, name: &'static str, parts: &[&AttributeKey]) -> Vec<Row> {
        let is_total = |attributes: &Attributes| attributes.get(total) == Some(&name.into());
        let all = self.time.sum(is_total);
        if all == 0.0 {
            return Vec::new();
        }
        let error = relative_error(all, self.variance.sum(is_total));
        let mut shares: BTreeMap<String, Vec<Option<Value>>> = BTreeMap::new();
        for attributes in self.time.attributes().filter(|attributes| is_total(attributes)) {
            let values: Vec<_> = parts.iter().map(|key| attributes.get(key.key).cloned()).collect();
            let names: Vec<_> = values.iter().flatten().map(text).collect();
            shares.insert(names.join(" "), values);
        }
        let is_share = |values: &[Option<Value>], attributes: &Attributes| {
            is_total(attributes)
                && parts.iter().zip(values).all(|(key, value)| attributes.get(key.key) == value.as_ref())
        };
        let sampled = |values: &[Option<Value>]| self.time.sum(|attributes| is_share(values, attributes));
        let (mut precise, hidden): (Vec<_>, Vec<_>) = shares
            .into_iter()
            .map(|(name, values)| (sampled(&values), name, values))
            .filter(|(own, ..)| *own > 0.0)
            .partition(|(own, ..)| error_of_share(own / all, error) <= LARGEST_ERROR);
        precise.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
        let mut rows = vec![self.row(0, name, Some(error), &is_total)];
        for (own, name, values) in &precise {
            let error = error_of_share(own / all, error);
            rows.push(self.row(1, name, Some(error), &|attributes| is_share(values, attributes)));
        }
        if !hidden.is_empty() {
            let is_hidden = |attributes: &Attributes| hidden.iter().any(|(.., values)| is_share(values, attributes));
            rows.push(self.row(1, &format!("{} more", hidden.len()), None, &is_hidden));
        }
        rows
    }

    fn row(&self, depth: usize, name: &str, error: Option<f64>, is_part: &IsPart<'_>) -> Row {
        let rate = self.time.per_second(is_part);
        let error = error.map_or(Cell::Above(LARGEST_ERROR), |error| Cell::Number(Quantity::share(error)));
        let of_cpu = |cpu: &Value| {
            let is_of_cpu = |attributes: &Attributes| is_part(attributes) && attributes.get(CPU) == Some(cpu);
            Cell::Number(Quantity::share(self.time.per_second(is_of_cpu)))
        };
        let (time, share) = (Quantity::number(rate * 1e3), Quantity::share(rate));
        let fixed = [Cell::label(name), Cell::Number(time), error, Cell::Number(share)];
        Row { depth, cells: fixed.into_iter().chain(self.cpus.iter().map(of_cpu)).collect() }
    }
}

/// Returns the standard error of a share of a total, divided by the share, from the relative standard error of the total. The total
/// counts as the number of equal samples that has this error. The share has a beta distribution after these samples and a uniform
/// prior, so a share of 1 has an error too: one sample does not show that there is no other function.
fn error_of_share(share: f64, error: f64) -> f64 {
    let samples = error.powi(-2);
    let (inside, outside) = (share * samples + 1.0, (1.0 - share).max(0.0) * samples + 1.0);
    (outside / inside / (samples + 3.0)).sqrt()
}
