//! Spans of traces.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicUsize, Ordering},
};

pub use opentelemetry::trace::{SpanContext, SpanId, TraceId};
use opentelemetry::{
    InstrumentationScope,
    trace::{SpanKind, Status, TraceFlags, TraceState},
};
pub use opentelemetry_sdk::trace::SpanData;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanEvents, SpanLinks};

use super::{Attributes, Resource, SCHEMA_URL, SCOPE, UnixNanos};

/// The instrumentation scope of all spans.
static INSTRUMENTATION: LazyLock<InstrumentationScope> = LazyLock::new(|| {
    InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).with_schema_url(SCHEMA_URL).build()
});

/// Returns the context of a new span, with random ids. The span belongs to the trace of `parent`, or is the root of a new trace if
/// `parent` is [`SpanContext::NONE`].
#[must_use]
pub fn new_context(parent: &SpanContext) -> SpanContext {
    let ids = RandomIdGenerator::default();
    let trace = if parent.is_valid() { parent.trace_id() } else { ids.new_trace_id() };
    // Only sampled spans are exported.
    SpanContext::new(trace, ids.new_span_id(), TraceFlags::SAMPLED, false, TraceState::NONE)
}

/// Returns a finished span of kind `INTERNAL`. A span without a parent has the parent [`SpanContext::NONE`].
#[must_use]
pub fn finished_span(
    context: SpanContext,
    parent: &SpanContext,
    name: &'static str,
    [start, end]: [UnixNanos; 2],
    attributes: &Attributes,
) -> SpanData {
    SpanData {
        span_context: context,
        parent_span_id: parent.span_id(),
        parent_span_is_remote: parent.is_remote(),
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: start.into(),
        end_time: end.into(),
        attributes: attributes.key_values(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: INSTRUMENTATION.clone(),
    }
}

/// The spans of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSpans {
    /// The resource that the spans describe.
    pub resource: Arc<Resource>,
    /// The spans, each after its parent.
    pub spans: Vec<SpanData>,
}

/// Spans that are exported together.
#[derive(Debug, Default)]
pub struct SpanBatch {
    /// The spans by resource.
    pub resources: Vec<ResourceSpans>,
    accepted: AtomicUsize,
}

impl SpanBatch {
    /// Returns a batch that no output has accepted.
    #[must_use]
    pub const fn new(resources: Vec<ResourceSpans>) -> Self {
        Self { resources, accepted: AtomicUsize::new(0) }
    }

    /// Returns the number of spans.
    #[must_use]
    pub fn spans(&self) -> u64 {
        self.resources.iter().map(|resource| resource.spans.len() as u64).sum()
    }

    /// Records that a receiver has accepted all spans.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of receivers that have accepted all spans.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// A measurement of a histogram with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// The span.
    pub context: SpanContext,
    /// The measured value, in the unit of the histogram.
    pub value: f64,
    /// The time of the measurement.
    pub time: UnixNanos,
    /// Attributes that the point of the histogram lacks.
    pub attributes: Attributes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_context_is_sampled_and_in_the_trace_of_its_parent() {
        let root = new_context(&SpanContext::NONE);
        let child = new_context(&root);
        assert!(root.is_valid() && root.is_sampled() && !root.is_remote());
        assert_eq!(child.trace_id(), root.trace_id());
        assert_ne!(child.span_id(), root.span_id());
        assert_ne!(new_context(&SpanContext::NONE).trace_id(), root.trace_id());
    }

    #[test]
    fn a_batch_counts_spans_and_acceptances() {
        let batch = SpanBatch::default();
        assert_eq!((batch.spans(), batch.accepted()), (0, 0));
        batch.accept();
        assert_eq!(batch.accepted(), 1);
    }
}
