//! Converts spans to OTLP messages.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{self as wire, ResourceSpans, ScopeSpans, SpanFlags, Status, span::SpanKind},
};

use super::encode::{key_values, resource, scope};
use crate::telemetry::{Parent, SCHEMA_URL, Span, SpanBatch, SpanContext};

/// `sampled` of W3C trace flags: spans are exported only if they are sampled.
const SAMPLED: u32 = 1;

/// Returns the request for the spans of a batch.
pub(super) fn request(batch: &SpanBatch) -> ExportTraceServiceRequest {
    let of = |spans: &crate::telemetry::ResourceSpans| ResourceSpans {
        resource: Some(resource(&spans.resource)),
        scope_spans: vec![ScopeSpans {
            scope: Some(scope()),
            spans: spans.spans.iter().map(span).collect(),
            schema_url: SCHEMA_URL.to_owned(),
        }],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: batch.resources.iter().map(of).collect() }
}

fn span(span: &Span) -> wire::Span {
    let remote = match span.parent {
        Parent::None => 0,
        Parent::Local(_) => SpanFlags::ContextHasIsRemoteMask as u32,
        Parent::Remote(_) => SpanFlags::ContextHasIsRemoteMask as u32 | SpanFlags::ContextIsRemoteMask as u32,
    };
    wire::Span {
        trace_id: span.context.trace.0.to_vec(),
        span_id: span.context.span.0.to_vec(),
        parent_span_id: span.parent.id().map_or_else(Vec::new, |id| id.0.to_vec()),
        flags: SAMPLED | remote,
        name: span.name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: span.start.0,
        end_time_unix_nano: span.end.0,
        attributes: key_values(&span.attributes),
        links: span.links.iter().map(link).collect(),
        status: Some(Status::default()),
        ..Default::default()
    }
}

fn link(context: &SpanContext) -> wire::span::Link {
    wire::span::Link {
        trace_id: context.trace.0.to_vec(),
        span_id: context.span.0.to_vec(),
        flags: SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32 | SpanFlags::ContextIsRemoteMask as u32,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::testing::{after, batch},
        telemetry::{SpanId, TraceId},
    };

    #[test]
    fn spans_keep_ids_parents_times_and_links() {
        let mut batch = batch(3);
        let context = SpanContext { trace: TraceId([7; 16]), span: SpanId([8; 8]) };
        let spans = &mut batch.resources[0].spans;
        spans[1].parent = Parent::Local(SpanId([9; 8]));
        spans[2].parent = Parent::Remote(SpanId([9; 8]));
        spans[2].links.push(context);
        let request = request(&batch);
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.iter().map(|span| span.flags).collect::<Vec<_>>(), [1, 0x101, 0x301]);
        assert_eq!(spans.iter().map(|span| span.parent_span_id.len()).collect::<Vec<_>>(), [0, 8, 8]);
        assert_eq!((spans[0].trace_id.len(), spans[0].span_id.len(), spans[0].kind()), (16, 8, SpanKind::Internal));
        assert_eq!((spans[0].start_time_unix_nano, spans[0].end_time_unix_nano), (after(1).0, after(2).0));
        assert_eq!((spans[2].links[0].trace_id.clone(), spans[2].links[0].flags), (vec![7; 16], 0x301));
        assert!(request.resource_spans[0].resource.as_ref().is_some_and(|resource| !resource.attributes.is_empty()));
    }
}
