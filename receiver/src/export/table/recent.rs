//! The most recent spans.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use super::{layout::Column, names::single, rows::heading, section::Section, units::amount};
use crate::telemetry::{Parent, Resource, Span, SpanBatch, Value};

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
            let first = |span: &&Span| !matches!(span.parent, Parent::Local(_));
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

fn row(resource: &Resource, span: &Span) -> Vec<String> {
    let end = SystemTime::UNIX_EPOCH + Duration::from_nanos(span.end.0);
    let time = humantime::format_rfc3339_millis(end).to_string();
    // The time of day, without the date and the letter of the time zone.
    let time = time.get(11..23).unwrap_or_default().to_owned();
    let duration = span.end.0.saturating_sub(span.start.0) as f64 / 1e9;
    let layer = span.attributes.get(LAYER).map_or_else(|| "-".to_owned(), Value::to_string);
    vec![time, single(&resource.attributes), amount(duration, "s"), layer]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::testing::batch,
        telemetry::{SpanId, UnixNanos},
    };

    #[test]
    fn the_newest_spans_come_first() {
        let mut recent = Recent::default();
        assert!(recent.section().is_none());
        let mut spans = batch(7);
        for (number, span) in spans.resources[0].spans.iter_mut().enumerate() {
            span.end = UnixNanos(span.start.0 + (number as u64 + 1) * 10_000_000);
            span.attributes.set(LAYER, "socket_read");
        }
        // A step of a packet has no row.
        spans.resources[0].spans[6].parent = Parent::Local(SpanId([1; 8]));
        recent.add(&spans);
        let rows = recent.section().expect("a section").rows;
        assert_eq!(
            rows.iter().map(|row| &*row[2]).collect::<Vec<_>>(),
            ["60.0ms", "50.0ms", "40.0ms", "30.0ms", "20.0ms"]
        );
        assert_eq!(rows[0][3], "socket_read");
    }
}
