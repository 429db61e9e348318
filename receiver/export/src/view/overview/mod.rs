//! One line for each workload: its figures and the likely cause of its latency.
//!
//! This is the only module of the view that refers to metrics by name. A test compares the names with the registry of signals.

mod cause;
mod definitions;
mod figure;
#[cfg(test)]
mod tests;

use self::figure::has_points;
pub use self::{
    cause::{Bound, Cause, Condition, RULES, Rule, page},
    figure::{Figure, Figures, Source},
};
use super::{
    input::Input,
    section::{Cell, Column, Row, Section, WORKLOAD},
};

/// The heading of the column with the likely cause.
pub const CAUSE: &str = "likely cause";

/// A workload in the last interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The name, without control characters; `(node)` for the work that belongs to no workload.
    pub name: String,
    /// The figures.
    pub figures: Figures,
    /// The likely cause of its latency.
    pub cause: Cause,
}

/// The order of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// By a figure, the highest first.
    Figure(Figure),
    /// By name.
    Name,
}

impl Default for Sort {
    fn default() -> Self {
        Self::Figure(Figure::Wait)
    }
}

impl Sort {
    /// All orders, in the order of the columns.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Name).chain(Figure::COLUMNS.map(Self::Figure))
    }

    /// Returns the heading of the column that determines the order.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Figure(figure) => figure.heading(),
            Self::Name => "workload",
        }
    }

    /// Sorts workloads. Equal ones are sorted by wait, then by received segments, then by name.
    pub fn sort(self, workloads: &mut [Workload]) {
        let key = |workload: &Workload, figure| workload.figures.get(figure).unwrap_or(-1.0);
        workloads.sort_by(|one, other| {
            let descending = |figure| key(other, figure).total_cmp(&key(one, figure));
            let first = match self {
                Self::Figure(figure) => descending(figure),
                Self::Name => std::cmp::Ordering::Equal,
            };
            let by_name = || one.name.cmp(&other.name);
            match self {
                Self::Name => by_name(),
                Self::Figure(_) => first
                    .then_with(|| descending(Figure::Wait))
                    .then_with(|| descending(Figure::Segments))
                    .then_with(by_name),
            }
        });
    }
}

/// Returns the workloads with measurements, in the order of the snapshot with the node first.
pub(super) fn workloads(input: &Input<'_>) -> Vec<Workload> {
    let of_node = Figures::of_node(input);
    let workload = |index: usize| {
        let figures = of_node.of_resource(input, index);
        Workload { name: input.names[index].text.clone(), figures, cause: Cause::of(&figures) }
    };
    let resources = 0..input.current.resources.len();
    resources.filter(|index| has_points(input, *index)).map(workload).filter(Workload::is_active).collect()
}

impl Workload {
    /// Returns the explanation of the cause, and the evidence of each condition with the measured figures.
    #[must_use]
    pub fn explanation(&self) -> Vec<String> {
        let conditions = Rule::of(&self.figures).map_or(&[][..], |rule| rule.conditions);
        let evidence = conditions.iter().map(|condition| condition.evidence(&self.figures));
        std::iter::once(self.cause.explanation().to_owned()).chain(evidence).collect()
    }

    /// Returns true if a figure other than a share of the node is above zero.
    fn is_active(&self) -> bool {
        Figure::COLUMNS.iter().any(|figure| self.figures.get(*figure).is_some_and(|value| value > 0.0))
    }
}

/// Returns a section with a row for each workload in an order. Columns without any value are left out.
#[must_use]
pub fn section(workloads: &[Workload]) -> Section {
    let is_used = |figure: &Figure| workloads.iter().any(|workload| workload.figures.get(*figure).is_some());
    let figures: Vec<Figure> = Figure::COLUMNS.into_iter().filter(is_used).collect();
    let of = |figure: &Figure| Column::number(figure.heading(), figure.definition().spare);
    let columns = std::iter::once(Column::name(WORKLOAD)).chain(figures.iter().map(of)).chain([Column::label(CAUSE)]);
    let row = |workload: &Workload| {
        let cell = |figure: &Figure| Cell::optional(workload.figures.get(*figure).map(|value| figure.cell(value)));
        let cells = figures.iter().map(cell);
        let (name, cause) = (Cell::label(&workload.name), Cell::label(workload.cause.as_str()));
        Row::new(std::iter::once(name).chain(cells).chain([cause]).collect())
    };
    Section {
        title: "workloads".to_owned(),
        description: "Durations are p99; rtt is p50. docs/causes.md has the rules of the likely cause.",
        columns: columns.collect(),
        rows: workloads.iter().map(row).collect(),
        rest: None,
    }
}
