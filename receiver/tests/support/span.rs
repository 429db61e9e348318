//! Spans of the sidecar's OTLP/JSON lines, parsed with the published types of OpenTelemetry.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{Span as Wire, span::SpanKind},
};

use super::line::{Attributes, has_spans, text};

/// A span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The attributes of the resource.
    pub resource: Attributes,
    pub trace: Vec<u8>,
    pub id: Vec<u8>,
    /// Empty for the root of a trace.
    pub parent: Vec<u8>,
    pub name: String,
    pub start: u64,
    pub end: u64,
    pub attributes: Attributes,
    /// The traces and spans of its links.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Span {
    /// Parses a line with spans; `None` for a line with metrics.
    pub fn parse(line: &str) -> Option<Vec<Self>> {
        if !has_spans(line) {
            return None;
        }
        let request: ExportTraceServiceRequest = serde_json::from_str(line).unwrap();
        Some(Self::of_request(request))
    }

    /// Returns the spans of a request.
    pub fn of_request(request: ExportTraceServiceRequest) -> Vec<Self> {
        let mut spans = Vec::new();
        for of in request.resource_spans {
            let resource = text(of.resource.unwrap_or_default().attributes);
            let wires = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(wires.map(|span| Self::new(resource.clone(), span)));
        }
        spans
    }

    fn new(resource: Attributes, span: Wire) -> Self {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{span:?}");
        assert_eq!(span.kind(), SpanKind::Internal, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        Self {
            resource,
            trace: span.trace_id,
            id: span.span_id,
            parent: span.parent_span_id,
            name: span.name,
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
            attributes: text(span.attributes),
            links: span.links.into_iter().map(|link| (link.trace_id, link.span_id)).collect(),
        }
    }

    /// Returns the value of an attribute, or an empty text.
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}
