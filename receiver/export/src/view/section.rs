//! Sections, columns, rows and cells.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use super::units::Quantity;
use crate::telemetry::UnixNanos;

/// Metrics shown together, with a row for each set of attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The title.
    pub title: String,
    /// A description in one sentence; empty if there is none.
    pub description: &'static str,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Row>,
    /// A sentence about resources without a row.
    pub rest: Option<String>,
}

/// A column of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The content of the cells.
    pub kind: ColumnKind,
    /// The rank among the columns that are dropped if space is short, highest first. Columns with zero stay.
    pub spare: u8,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Values of an attribute.
    Label,
    /// Names, which can be long.
    Name,
    /// Numbers.
    Number,
}

/// A row of a section.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The depth in a tree; zero for a total, and for rows of other sections.
    pub depth: usize,
    /// The cells, in the order of the columns.
    pub cells: Vec<Cell>,
}

/// A cell of a section. Its text for people is its `Display`.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// There is no value.
    Missing,
    /// The value of the row above.
    Repeated,
    /// A name, or the value of an attribute. The text has no control characters.
    Label(String),
    /// A time, which is displayed as a time of day.
    Time(UnixNanos),
    /// A number.
    Number(Quantity),
    /// Half of the 95% confidence interval of the number in the cell before.
    Interval(Quantity),
    /// A share above this limit.
    Above(f64),
}

impl Section {
    /// Returns a copy with the rows of one workload, or `None` without such rows.
    #[must_use]
    pub fn of_workload(&self, name: &str) -> Option<Self> {
        let mut section = Self { rest: None, ..self.clone() };
        let has_names = section.retain_workloads(|known| known == name);
        (has_names && !section.rows.is_empty()).then_some(section)
    }

    /// Removes the rows of other workloads. Returns false if the section has no workloads.
    pub(super) fn retain_workloads(&mut self, is_kept: impl Fn(&str) -> bool) -> bool {
        let Some(column) = self.columns.iter().position(|column| column.heading == WORKLOAD) else { return false };
        let mut keeps = false;
        self.rows.retain(|row| {
            match row.cells.get(column) {
                // Further rows of the workload above.
                Some(Cell::Repeated) => {}
                cell => keeps = matches!(cell, Some(Cell::Label(label)) if is_kept(label)),
            }
            keeps
        });
        true
    }
}

/// The heading of the column with the names of workloads.
pub(super) const WORKLOAD: &str = "workload";

impl Column {
    pub(super) fn label(heading: &str) -> Self {
        Self { heading: heading.to_owned(), kind: ColumnKind::Label, spare: 0 }
    }

    pub(super) fn name(heading: &str) -> Self {
        Self { kind: ColumnKind::Name, ..Self::label(heading) }
    }

    pub(super) fn number(heading: &str, spare: u8) -> Self {
        Self { kind: ColumnKind::Number, spare, ..Self::label(heading) }
    }
}

impl Row {
    pub(super) fn new(cells: Vec<Cell>) -> Self {
        Self { depth: 0, cells }
    }
}

impl Cell {
    pub(super) fn label(text: impl Into<String>) -> Self {
        Self::Label(text.into())
    }

    /// Returns a missing cell for `None`.
    pub(super) fn optional(quantity: Option<Quantity>) -> Self {
        quantity.map_or(Self::Missing, Self::Number)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("-"),
            Self::Repeated => Ok(()),
            Self::Label(text) => f.write_str(text),
            Self::Time(time) => f.write_str(&time_of_day(*time)),
            Self::Number(quantity) => quantity.fmt(f),
            Self::Interval(half) => write!(f, "±{half}"),
            Self::Above(share) => write!(f, ">{:.0}%", share * 100.0),
        }
    }
}

/// Formats a time without the date and the letter of the time zone.
fn time_of_day(time: UnixNanos) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(time.0);
    humantime::format_rfc3339_millis(time).to_string().get(11..23).unwrap_or_default().to_owned()
}

/// Returns a metric's name without the last part.
pub(super) fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Returns a metric's name without the common prefix.
pub(super) fn short(name: &str) -> &str {
    name.strip_prefix("undercurrent.").unwrap_or(name)
}
