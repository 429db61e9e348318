//! The most recent spans.

use std::collections::VecDeque;

use super::{layout::Column, names::single, rows::heading, section::Section, units::amount};
use crate::telemetry::{Resource, SpanBatch, SpanData, SpanId};

/// Number of spans in the table.
const ROWS: usize = 5;
/// The attribute that names the slowest part of a span.
const LAYER: &str = "undercurrent.network.layer";

/// The most recent spans without a parent in this process, the newest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<Vec<String>>);

impl Recent {
    /// Adds the spans of a batch.
    pub(super) fn add(&mut self, batch: &SpanBatch) {
        for resource in &batch.resources {
            let first = |span: &&SpanData| span.parent_span_id == SpanId::INVALID || span.parent_span_is_remote;
            for span in resource.spans.iter().filter(first) {
                self.0.push_front(row(&resource.resource, span));
            }
        }
        self.0.truncate(ROWS);
    }

    /// Returns the section of the table; `None` without spans.
    pub(super) fn section(&self) -> Option<Section> {
        let columns = vec![
            Column::text("time"),
            Column::name("workload"),
            Column::number("duration", 0),
            Column::text(heading(LAYER)),
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

fn row(resource: &Resource, span: &SpanData) -> Vec<String> {
    let time = humantime::format_rfc3339_millis(span.end_time).to_string();
    // The time of day, without the date and the letter of the time zone.
    let time = time.get(11..23).unwrap_or_default().to_owned();
    let duration = span.end_time.duration_since(span.start_time).unwrap_or_default();
    let layer = span.attributes.iter().find(|attribute| attribute.key.as_str() == LAYER);
    let layer = layer.map_or_else(|| "-".to_owned(), |attribute| attribute.value.to_string());
    vec![time, single(&resource.attributes), amount(duration.as_secs_f64(), "s"), layer]
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
            rows.iter().map(|row| &*row[2]).collect::<Vec<_>>(),
            ["60.0ms", "50.0ms", "40.0ms", "30.0ms", "20.0ms"]
        );
        assert_eq!(rows[0][3], "socket_read");
    }
}
