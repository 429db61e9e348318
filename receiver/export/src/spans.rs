//! Converts spans to OTLP messages.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message as _;

use super::encode::{NESTED, resource, scope};
use crate::telemetry::{Resource, SCHEMA_URL, SpanBatch};

/// Returns the requests for the spans of a batch, each with its number of spans. A request has at most `limit` encoded bytes, or
/// one span.
pub(super) fn requests(
    batch: &SpanBatch,
    limit: usize,
) -> impl Iterator<Item = (ExportTraceServiceRequest, u64)> + Send {
    let all = batch.resources.iter().flat_map(|spans| spans.spans.iter().map(|span| (&spans.resource, span)));
    let mut all = all.map(|(of, span)| (of, Span::from(span.clone()))).peekable();
    std::iter::from_fn(move || {
        let mut request = ExportTraceServiceRequest::default();
        let (mut last, mut size, mut count) = (None, 0, 0);
        while let Some((of, span)) = all.peek() {
            let next: *const Resource = &raw const ***of;
            let additional = (last != Some(next)).then(|| empty(of));
            let addition =
                NESTED + span.encoded_len() + additional.as_ref().map_or(0, |new| 2 * NESTED + new.encoded_len());
            if count > 0 && size + addition > limit {
                break;
            }
            (last, size, count) = (Some(next), size + addition, count + 1);
            request.resource_spans.extend(additional);
            let scope = request.resource_spans.last_mut().and_then(|spans| spans.scope_spans.last_mut());
            scope.into_iter().for_each(|scope| scope.spans.extend(all.next().map(|(_, span)| span)));
        }
        (count > 0).then_some((request, count))
    })
}

/// Returns a resource without spans.
fn empty(resource: &Resource) -> ResourceSpans {
    ResourceSpans {
        resource: Some(self::resource(resource)),
        scope_spans: vec![ScopeSpans { scope: Some(scope()), spans: Vec::new(), schema_url: SCHEMA_URL.to_owned() }],
        schema_url: SCHEMA_URL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Link, SpanContext, SpanId, TraceFlags, TraceState};
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

    use super::*;
    use crate::testing::{after, batch};

    #[test]
    fn large_batches_are_split_by_encoded_size() {
        let mut all = batch(500);
        all.resources.extend(batch(300).resources);
        let limit = 4_000;
        let parts: Vec<_> = requests(&all, limit).collect();
        assert!(parts.len() > 10 && parts.iter().all(|(request, _)| request.encoded_len() <= limit));
        assert!(parts[..parts.len() - 1].iter().all(|(request, _)| request.encoded_len() > limit / 2));
        let ids = |request: &ExportTraceServiceRequest| {
            let scopes = request.resource_spans.iter().flat_map(|spans| &spans.scope_spans);
            scopes.flat_map(|scope| &scope.spans).map(|span| span.span_id.clone()).collect::<Vec<_>>()
        };
        let (whole, count) = requests(&all, usize::MAX).next().expect("a request");
        assert_eq!((count, whole.resource_spans.len()), (800, 2));
        assert!(parts.iter().all(|(request, count)| ids(request).len() as u64 == *count));
        assert_eq!(parts.iter().flat_map(|(request, _)| ids(request)).collect::<Vec<_>>(), ids(&whole));
        assert_eq!(requests(&all, 1).count(), 800);
    }

    #[test]
    fn spans_keep_ids_parents_times_and_links() {
        let mut batch = batch(3);
        let ids = (7_u128.into(), 8_u64.into());
        let context = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, true, TraceState::NONE);
        let spans = &mut batch.resources[0].spans;
        spans[1].parent_span_id = SpanId::from(9_u64);
        (spans[2].parent_span_id, spans[2].parent_span_is_remote) = (SpanId::from(9_u64), true);
        spans[2].links.links.push(Link::with_context(context));
        let (request, _) = requests(&batch, usize::MAX).next().expect("a request");
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
