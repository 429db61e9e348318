//! Spans of traces.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Attributes, Resource, UnixNanos};

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// Returns a random id, which is not zero.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(1..).to_be_bytes())
    }
}

impl SpanId {
    /// Returns a random id, which is not zero.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u64(1..).to_be_bytes())
    }
}

fn hexadecimal(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

/// A reference to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
}

/// The parent of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parent {
    /// The span is the root of its trace.
    None,
    /// A span of this process.
    Local(SpanId),
    /// A span of another process.
    Remote(SpanId),
}

impl Parent {
    /// Returns the id of the parent.
    #[must_use]
    pub const fn id(self) -> Option<SpanId> {
        match self {
            Self::None => None,
            Self::Local(id) | Self::Remote(id) => Some(id),
        }
    }
}

/// A finished span of kind `INTERNAL`.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace and the id of the span.
    pub context: SpanContext,
    /// The parent.
    pub parent: Parent,
    /// The name.
    pub name: &'static str,
    /// The start time.
    pub start: UnixNanos,
    /// The end time.
    pub end: UnixNanos,
    /// The attributes.
    pub attributes: Attributes,
    /// References to spans of other traces.
    pub links: Vec<SpanContext>,
}

/// The spans of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSpans {
    /// The resource that the spans describe.
    pub resource: Arc<Resource>,
    /// The spans, each after its parent.
    pub spans: Vec<Span>,
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
    fn ids_are_random_and_printed_in_hexadecimal() {
        assert_ne!(TraceId::random(), TraceId::random());
        assert_ne!(SpanId::random(), SpanId::random());
        assert_eq!(SpanId([0, 1, 2, 3, 0xa0, 0xff, 6, 7]).to_string(), "00010203a0ff0607");
        assert_eq!(TraceId([0x0f; 16]).to_string(), "0f".repeat(16));
    }

    #[test]
    fn a_batch_counts_spans_and_acceptances() {
        let batch = SpanBatch::default();
        assert_eq!((batch.spans(), batch.accepted()), (0, 0));
        batch.accept();
        assert_eq!(batch.accepted(), 1);
    }
}
