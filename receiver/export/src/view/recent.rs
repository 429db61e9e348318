//! The most recent spans.

use std::{collections::VecDeque, time::SystemTime};

use super::{
    names::single,
    rows::heading,
    section::{Cell, Column, Row, Section},
    units::Quantity,
};
use crate::telemetry::{Resource, SpanBatch, SpanData, SpanId, UnixNanos};

/// Number of spans in a view.
const ROWS: usize = 5;
/// The attribute that names the slowest part of a span.
const LAYER: &str = "undercurrent.network.layer";

/// The most recent spans without a parent in this process, the newest first.
#[derive(Debug, Default)]
pub struct Recent(VecDeque<Row>);

impl Recent {
    /// Adds the spans of a batch.
    pub fn add(&mut self, batch: &SpanBatch) {
        for resource in &batch.resources {
            let first = |span: &&SpanData| span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote;
            for span in resource.spans.iter().filter(first) {
                self.0.push_front(row(&resource.resource, span));
            }
        }
        self.0.truncate(ROWS);
    }

    /// Returns the section of the spans; `None` without spans.
    pub(super) fn section(&self) -> Option<Section> {
        let columns = vec![
            Column::label("time"),
            Column::name("workload"),
            Column::number("duration", 0),
            Column::label(heading(LAYER)),
        ];
        (!self.0.is_empty()).then(|| Section {
            title: "slow packets".to_owned(),
            description: "The most recent packets with spans, and the layer before which each waited longest.",
            columns,
            rows: self.0.iter().cloned().collect(),
            rest: None,
        })
    }
}

fn row(resource: &Resource, span: &SpanData) -> Row {
    let end = span.end_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let duration = span.end_time.duration_since(span.start_time).unwrap_or_default();
    let layer = span.attributes.iter().find(|attribute| attribute.key.as_str() == LAYER);
    Row::new(vec![
        Cell::Time(UnixNanos(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX))),
        Cell::Label(single(&resource.attributes)),
        Cell::Number(Quantity::seconds(duration.as_secs_f64())),
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
}
