//! Time that is estimated from samples, with its confidence interval next to the exact time.

use super::{
    group::headline,
    input::{Growths, Input},
    part::Part,
    section::{Cell, Column, Row, Section},
    units::Quantity,
};
use crate::telemetry::{Attributes, Descriptor, View};

/// Standard errors of a 95% confidence interval of a normal distribution.
const STANDARD_ERRORS: f64 = 1.96;

/// Returns the section of an estimate, with a row for each value of its first attribute and one for all; `None` if nothing
/// was sampled in the interval.
pub(super) fn section(input: &Input<'_>, descriptor: &'static Descriptor) -> Option<Section> {
    let (View::Estimate { variance, exact, busy }, Some(key)) = (descriptor.view, descriptor.attributes.first()) else {
        return None;
    };
    let (estimate, variance) = (Growths::everywhere(input, descriptor.name), Growths::everywhere(input, variance));
    let exact = Growths::everywhere(input, exact);
    let busy = Growths::everywhere(input, busy).per_second(|_| true);
    let row = |name: &str, is_part: &dyn Fn(&Attributes) -> bool| {
        let rate = estimate.per_second(is_part);
        let error = STANDARD_ERRORS * rate * relative_error(estimate.sum(is_part), variance.sum(is_part));
        let exact = (!exact.is_empty(is_part)).then(|| exact.per_second(is_part));
        (rate > 0.0).then(|| {
            // An interval that reaches zero has too few samples for a share.
            let busy = (busy > 0.0 && error < rate).then(|| Quantity::share(rate / busy));
            Row::new(vec![
                Cell::label(name),
                Cell::Number(Quantity::number(rate * 1e3)),
                Cell::Interval(Quantity::number(error * 1e3)),
                Cell::optional(exact.map(|exact| Quantity::number(exact * 1e3))),
                Cell::Number(Quantity::share(rate)),
                Cell::optional(busy),
            ])
        })
    };
    let of = |name: &'static str| row(name, &|attributes| attributes.get(key.key) == Some(&name.into()));
    let rows: Vec<_> = key.known().into_iter().filter_map(of).collect();
    // The sum of exact times has fewer events than that of estimates, so the last row has none.
    let all = row("all", &|_| true).map(|mut row| {
        row.cells[3] = Cell::Missing;
        row
    });
    let headings = [("ms/s", 0), ("95% interval", 0), ("exact ms/s", 0), ("of one CPU", 1), ("of busy time", 0)];
    let columns = headings.map(|(heading, spare)| Column::number(heading, spare));
    Some(Section {
        columns: [Column::label("event")].into_iter().chain(columns).collect(),
        rows: rows.into_iter().chain([all?]).collect(),
        ..headline(&[Part::whole(descriptor)])
    })
}

/// Returns the standard error of an estimate, divided by the estimate.
pub(super) fn relative_error(estimate: f64, variance: f64) -> f64 {
    variance.sqrt() / estimate
}
