//! The view as JSON, with the pages of the terminal, for a browser.

use serde::Serialize;

use crate::{
    terminal::pages::Page,
    view::{
        Cell, ColumnKind, Section, Severity, View,
        overview::{self, Sort, Workload},
    },
};

#[derive(Serialize)]
struct Document<'a> {
    /// Milliseconds since the Unix epoch.
    time: u64,
    host: Option<&'a str>,
    /// The interval in seconds; missing for changes since the start.
    seconds: Option<f64>,
    pages: Vec<PageDocument<'a>>,
    /// The causes, in the order of the workloads of the first page.
    causes: Vec<CauseDocument<'a>>,
    notices: Vec<NoticeDocument<'a>>,
}

#[derive(Serialize)]
struct PageDocument<'a> {
    title: &'static str,
    /// A sentence for a page without sections.
    empty: &'static str,
    sections: Vec<SectionDocument<'a>>,
}

#[derive(Serialize)]
struct SectionDocument<'a> {
    title: &'a str,
    description: &'a str,
    columns: Vec<ColumnDocument<'a>>,
    rows: Vec<RowDocument>,
    rest: Option<&'a str>,
}

#[derive(Serialize)]
struct ColumnDocument<'a> {
    heading: &'a str,
    is_number: bool,
}

#[derive(Serialize)]
struct RowDocument {
    depth: usize,
    cells: Vec<CellDocument>,
}

#[derive(Serialize)]
struct CellDocument {
    text: String,
    /// The number, in the unit of the column.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
}

#[derive(Serialize)]
struct CauseDocument<'a> {
    workload: &'a str,
    cause: &'static str,
    /// The explanation of the cause, and the evidence with figures.
    explanation: Vec<String>,
}

#[derive(Serialize)]
struct NoticeDocument<'a> {
    title: &'a str,
    is_failure: bool,
    remarks: Vec<String>,
}

/// Returns a view as JSON.
pub(crate) fn json(mut view: View) -> Vec<u8> {
    Sort::default().sort(&mut view.workloads);
    let overview = overview::section(&view.workloads);
    let page = |page: &Page| {
        let is_first = *page == Page::Workloads && !overview.rows.is_empty();
        let sections = is_first.then_some(&overview).into_iter().chain(page.sections(&view));
        PageDocument { title: page.title(), empty: page.empty(), sections: sections.map(section).collect() }
    };
    let document = Document {
        time: view.time.0 / 1_000_000,
        host: view.host.as_deref(),
        seconds: view.seconds,
        pages: Page::ALL.iter().map(page).collect(),
        causes: view.workloads.iter().map(cause).collect(),
        notices: view
            .notices
            .iter()
            .map(|notice| NoticeDocument {
                title: &notice.title,
                is_failure: notice.severity == Severity::Failure,
                remarks: notice.remarks.iter().map(ToString::to_string).collect(),
            })
            .collect(),
    };
    // All keys are texts, so the serialization cannot fail.
    serde_json::to_vec(&document).unwrap_or_default()
}

fn section(section: &Section) -> SectionDocument<'_> {
    let column = |column: &crate::view::Column| column.kind == ColumnKind::Number;
    SectionDocument {
        title: &section.title,
        description: section.description,
        columns: section
            .columns
            .iter()
            .map(|of| ColumnDocument { heading: &of.heading, is_number: column(of) })
            .collect(),
        rows: section
            .rows
            .iter()
            .map(|row| RowDocument { depth: row.depth, cells: row.cells.iter().map(cell).collect() })
            .collect(),
        rest: section.rest.as_deref(),
    }
}

fn cell(cell: &Cell) -> CellDocument {
    let value = if let Cell::Number(quantity) = cell { Some(quantity.value) } else { None };
    CellDocument { text: cell.to_string(), value: value.filter(|value| value.is_finite()) }
}

fn cause(workload: &Workload) -> CauseDocument<'_> {
    CauseDocument { workload: &workload.name, cause: workload.cause.as_str(), explanation: workload.explanation() }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::{
        telemetry::{Attributes, Data, Metric},
        testing::{CPU, DURATION, after, batch, histogram, node, point, resource_metrics},
        view::Recent,
    };

    #[test]
    fn a_view_has_the_pages_of_the_terminal() {
        let busy = |seconds| Metric {
            descriptor: &CPU,
            points: vec![point(
                Attributes::new().with("undercurrent.network.event", "receive_softirq"),
                Data::Double(seconds),
            )],
        };
        let read = Attributes::new().with("undercurrent.network.layer", "socket_read").with("network.transport", "tcp");
        let slow = || {
            let measured = Data::Histogram(histogram(-16, vec![5], 0.5));
            vec![Metric { descriptor: &DURATION, points: vec![point(read.clone(), measured)] }]
        };
        let mut later = node(vec![busy(0.5)], after(10));
        later.resources.push(resource_metrics(Attributes::new().with("container.name", "<b>web</b>"), slow()));
        let mut recent = Recent::default();
        recent.add(&batch(1));
        let earlier = node(vec![busy(0.1)], after(0));
        let view = View::new(Some(&earlier), &later, &recent, NonZeroUsize::new(2));
        let document: serde_json::Value = serde_json::from_slice(&json(view)).expect("JSON");
        insta::assert_snapshot!(format!("{document:#}"));
    }
}
