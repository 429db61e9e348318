//! Finds a W3C `traceparent` in the first bytes of a packet's payload, or parses the value that eBPF programs found there.
//!
//! A passive observer sees single packets: the payload can begin and end anywhere in a message. The parsers prefer no
//! result to a wrong result. They accept a field only if its complete line (HTTP/1) or its complete literal (HTTP/2)
//! is in the payload. They never panic, allocate at most [`LIMIT`] bytes, and read each byte a bounded number of times.
//!
//! Payload is confidential: no type that contains payload implements `Debug`, and no function logs or keeps it.

mod context;
mod http1;
#[cfg(test)]
mod http1_invariants;
mod http2;
#[cfg(test)]
mod http2_invariants;
#[cfg(test)]
mod testing;

use undercurrent_ebpf::abi::http1::NAME;

pub use self::context::parse;
pub use opentelemetry::trace::SpanContext;

/// The number of bytes that [`find`] reads. It ignores the rest of the payload.
pub const LIMIT: usize = 4096;

/// The protocols that [`find`] parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.0 and HTTP/1.1.
    pub http1: bool,
    /// HTTP/2 without TLS, including gRPC. Off by default, because clients name the field only in the first requests of
    /// a connection.
    pub http2: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { http1: true, http2: false }
    }
}

/// Returns the context of the first header section in a payload, or `None` if there is no unambiguous context.
///
/// A header section has no context if it is malformed or names the field twice. The next packet is not examined: it can
/// contain a second field.
pub fn find(payload: &[u8], protocols: Protocols) -> Option<SpanContext> {
    let payload = &payload[..payload.len().min(LIMIT)];
    // The parser of HTTP/1 rejects the control characters in frames of HTTP/2.
    let http1 = protocols.http1.then(|| http1::find(payload)).flatten();
    http1.or_else(|| protocols.http2.then(|| http2::find(payload)).flatten())
}

/// The `traceparent` fields of one header section.
#[derive(Default)]
struct Fields {
    count: usize,
    context: Option<SpanContext>,
}

impl Fields {
    /// Adds one field. Its context is `None` if its value is invalid or cut.
    fn add(&mut self, context: Option<SpanContext>) {
        self.count += 1;
        self.context = context;
    }

    /// Returns the context of the only field. The test suite of the W3C specification requires that a receiver
    /// rejects two fields (`test_traceparent_duplicated`).
    fn context(self) -> Option<SpanContext> {
        self.context.filter(|_| self.count == 1)
    }
}
