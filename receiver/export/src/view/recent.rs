//! The most recent spans.

use std::{collections::VecDeque, time::SystemTime};

use super::{
    names::single,
    rows::heading,
    section::{Cell, Column, Row, Section, WORKLOAD},
    units::Quantity,
};
use crate::telemetry::{Resource, ResourceSpans, SpanBatch, SpanData, SpanId, UnixNanos};

/// Number of spans in the table.
const ROWS: usize = 5;
/// Number of spans on the page with their steps.
const KEPT: usize = 50;
/// The attribute that names the slowest part of a span.
const LAYER: &str = "undercurrent.network.layer";

/// The most recent spans without a parent in this process, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Recent(VecDeque<Packet>);

/// A packet's span and its steps, each a row.
#[derive(Clone, Debug)]
struct Packet {
    row: Row,
    steps: Vec<Row>,
}

impl Recent {
    /// Adds the spans of a batch.
    pub fn add(&mut self, batch: &SpanBatch) {
        for ResourceSpans { resource, spans } in &batch.resources {
            let first = |span: &&SpanData| span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote;
            for span in spans.iter().filter(first) {
                let steps = steps(spans, span, 1);
                self.0.push_front(Packet { row: row(resource, span), steps });
            }
        }
        self.0.truncate(KEPT);
    }

    /// Returns the section of the newest spans; `None` without spans.
    pub(super) fn section(&self) -> Option<Section> {
        (!self.0.is_empty()).then(|| Section {
            title: "slow packets".to_owned(),
            description: "The most recent packets with spans, and the layer before which each waited longest.",
            columns: columns(),
            rows: self.0.iter().take(ROWS).map(|packet| packet.row.clone()).collect(),
            rest: None,
        })
    }

    /// Returns the section of all kept spans with their steps; `None` without spans.
    pub(super) fn with_steps(&self) -> Option<Section> {
        let rows = self.0.iter().flat_map(|packet| std::iter::once(&packet.row).chain(&packet.steps));
        Some(Section { rows: rows.cloned().collect(), ..self.section()? })
    }
}

fn columns() -> Vec<Column> {
    vec![Column::label("time"), Column::name(WORKLOAD), Column::number("duration", 0), Column::label(heading(LAYER))]
}

/// Returns a row for each span below a span, at a depth.
fn steps(spans: &[SpanData], parent: &SpanData, depth: usize) -> Vec<Row> {
    let id = parent.span_context.span_id();
    let is_step = |span: &&SpanData| span.parent_span_id == id && !span.parent_span_is_remote;
    let step = |span: &SpanData| {
        let name = format!("{}{}", " ".repeat(2 * depth), span.name);
        let cells = vec![Cell::Repeated, Cell::Repeated, Cell::Number(duration(span)), Cell::Label(name)];
        std::iter::once(Row::new(cells)).chain(steps(spans, span, depth + 1)).collect::<Vec<_>>()
    };
    spans.iter().filter(is_step).flat_map(step).collect()
}

fn duration(span: &SpanData) -> Quantity {
    Quantity::seconds(span.end_time.duration_since(span.start_time).unwrap_or_default().as_secs_f64())
}

fn row(resource: &Resource, span: &SpanData) -> Row {
    let end = span.end_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let layer = span.attributes.iter().find(|attribute| attribute.key.as_str() == LAYER);
    Row::new(vec![
        Cell::Time(UnixNanos(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX))),
        Cell::Label(single(&resource.attributes)),
        Cell::Number(duration(span)),
        layer.map_or(Cell::Missing, |attribute| Cell::Label(attribute.value.to_string())),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry::KeyValue;

    use super::*;
    use crate::testing::batch;

    #[test]
    fn the_newest_spans_come_first() {
        let mut recent = Recent::default();
        assert!(recent.section().is_none());
        let mut spans = batch(7);
        for (number, span) in spans.resources[0].spans.iter_mut().enumerate() {
            span.end_time = span.start_time + Duration::from_millis((number as u64 + 1) * 10);
            span.attributes.push(KeyValue::new(LAYER, "socket_read"));
        }
        // A step of a packet has no row.
        spans.resources[0].spans[6].parent_span_id = SpanId::from(1_u64);
        recent.add(&spans);
        let rows = recent.section().expect("a section").rows;
        assert_eq!(
            rows.iter().map(|row| row.cells[2].to_string()).collect::<Vec<_>>(),
            ["60.0ms", "50.0ms", "40.0ms", "30.0ms", "20.0ms"]
        );
        assert_eq!(rows[0].cells[3].to_string(), "socket_read");
    }

    #[test]
    fn steps_follow_their_packet() {
        let mut recent = Recent::default();
        let mut spans = batch(4);
        let all = &mut spans.resources[0].spans;
        // The second span is a step of the first one, and the third a state within the step.
        for step in 1..3 {
            all[step].parent_span_id = all[step - 1].span_context.span_id();
            all[step].name = format!("step {step}").into();
        }
        recent.add(&spans);
        let rows = recent.with_steps().expect("a section").rows;
        let layers: Vec<String> = rows.iter().map(|row| row.cells[3].to_string()).collect();
        assert_eq!(layers, ["-", "-", "  step 1", "    step 2"]);
    }
}
