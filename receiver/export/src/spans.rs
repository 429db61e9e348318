//! Converts spans to OTLP messages.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{ResourceSpans, ScopeSpans},
};

use super::encode::{resource, scope};
use crate::telemetry::{SCHEMA_URL, SpanBatch};

/// Returns the request for the spans of a batch.
pub(super) fn request(batch: &SpanBatch) -> ExportTraceServiceRequest {
    let of = |spans: &crate::telemetry::ResourceSpans| ResourceSpans {
        resource: Some(resource(&spans.resource)),
        scope_spans: vec![ScopeSpans {
            scope: Some(scope()),
            spans: spans.spans.iter().cloned().map(Into::into).collect(),
            schema_url: SCHEMA_URL.to_owned(),
        }],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: batch.resources.iter().map(of).collect() }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Link, SpanContext, SpanId, TraceFlags, TraceState};
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

    use super::*;
    use crate::testing::{after, batch};

    #[test]
    fn spans_keep_ids_parents_times_and_links() {
        let mut batch = batch(3);
        let ids = (7_u128.into(), 8_u64.into());
        let context = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, true, TraceState::NONE);
        let spans = &mut batch.resources[0].spans;
        spans[1].parent_span_id = SpanId::from(9_u64);
        (spans[2].parent_span_id, spans[2].parent_span_is_remote) = (SpanId::from(9_u64), true);
        spans[2].links.links.push(Link::with_context(context));
        let request = request(&batch);
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.iter().map(|span| span.flags).collect::<Vec<_>>(), [0x101, 0x101, 0x301]);
        assert_eq!(spans.iter().map(|span| span.parent_span_id.len()).collect::<Vec<_>>(), [0, 8, 8]);
        assert_eq!((spans[0].trace_id.len(), spans[0].span_id.len(), spans[0].kind()), (16, 8, SpanKind::Internal));
        assert_eq!((spans[0].start_time_unix_nano, spans[0].end_time_unix_nano), (after(1).0, after(2).0));
        assert_eq!(
            (spans[2].links[0].trace_id.clone(), spans[2].links[0].flags),
            (7_u128.to_be_bytes().to_vec(), 0x301)
        );
        assert!(request.resource_spans[0].resource.as_ref().is_some_and(|resource| !resource.attributes.is_empty()));
    }
}
