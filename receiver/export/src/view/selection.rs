//! The part of a view that is displayed.

use std::cmp::Ordering;

use super::{
    section::{Cell, Row, Section},
    units::Quantity,
};

/// The part of a view that is displayed, and its order. The default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only workloads with this text in their name, in upper or lower case.
    pub workload: Option<String>,
    /// Only these metrics.
    pub metrics: Option<Vec<&'static str>>,
    /// True without slow packets.
    pub without_spans: bool,
    /// The heading of a column. Sections with this column are sorted by it, the highest number first.
    pub sort: Option<String>,
}

impl Selection {
    /// Returns true if a workload is displayed.
    pub(super) fn has_workload(&self, name: &str) -> bool {
        self.workload.as_ref().is_none_or(|part| name.to_lowercase().contains(&part.to_lowercase()))
    }

    /// Returns true if a metric is displayed.
    pub(super) fn has_metric(&self, name: &str) -> bool {
        self.metrics.as_ref().is_none_or(|metrics| metrics.contains(&name))
    }

    /// Sorts the rows of a section. Rows without a name of their own stay below the row with their name.
    pub(super) fn sort(&self, section: &mut Section) {
        let is_sorted = |heading: &str| self.sort.as_deref() == Some(heading);
        let Some(column) = section.columns.iter().position(|column| is_sorted(&column.heading)) else { return };
        let mut blocks: Vec<Vec<Row>> = Vec::new();
        for row in section.rows.drain(..) {
            let continues = row.depth > 0 || matches!(row.cells.first(), Some(Cell::Repeated));
            match blocks.last_mut() {
                Some(block) if continues => block.push(row),
                _ => blocks.push(vec![row]),
            }
        }
        let cell = |block: &Vec<Row>| block.first().and_then(|row| row.cells.get(column)).cloned();
        blocks.sort_by(|one, other| order(cell(one), cell(other)));
        section.rows = blocks.into_iter().flatten().collect();
    }
}

/// Returns the order of two cells: numbers fall, texts rise, and missing cells are last.
fn order(one: Option<Cell>, other: Option<Cell>) -> Ordering {
    let number = |cell: &Option<Cell>| match cell {
        Some(Cell::Number(Quantity { value, .. })) => *value,
        _ => f64::NEG_INFINITY,
    };
    let text = |cell: &Option<Cell>| cell.as_ref().map(Cell::to_string);
    number(&other).total_cmp(&number(&one)).then_with(|| text(&one).cmp(&text(&other)))
}
