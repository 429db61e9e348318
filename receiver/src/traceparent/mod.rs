//! Finds a W3C `traceparent` in the first bytes of a packet's payload.
//!
//! A passive observer sees single packets: the payload can begin and end anywhere in a message. The parsers prefer no
//! result to a wrong result. They accept a field only if its complete line (HTTP/1) or its complete literal (HTTP/2)
//! is in the payload. They never panic, allocate nothing, and read each byte a bounded number of times.

mod context;
mod http1;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod testing;

/// The number of bytes that [`find`] reads. It ignores the rest of the payload.
pub const LIMIT: usize = 4096;

/// The lower-case name of the header field.
const NAME: &[u8] = b"traceparent";

/// A remote span: the parent that a `traceparent` field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace ID. At least one byte is not zero.
    pub trace: [u8; 16],
    /// The span ID of the caller. At least one byte is not zero.
    pub span: [u8; 8],
    /// True if the caller may have recorded the trace.
    pub sampled: bool,
}

/// The protocols that [`find`] parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.0 and HTTP/1.1.
    pub http1: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { http1: true }
    }
}

/// Returns the context of the first header section in a payload, or `None` if there is no unambiguous context.
///
/// A header section that names the field twice has no context. The same applies to a malformed header section, as far
/// as the payload contains it. A second field in the next packet is invisible, and does not change the result.
pub fn find(payload: &[u8], protocols: Protocols) -> Option<Context> {
    let payload = &payload[..payload.len().min(LIMIT)];
    protocols.http1.then(|| http1::find(payload)).flatten()
}

/// The `traceparent` fields of one header section.
#[derive(Default)]
struct Fields {
    count: usize,
    context: Option<Context>,
}

impl Fields {
    /// Adds one field. Its context is `None` if its value is invalid or cut.
    fn add(&mut self, context: Option<Context>) {
        self.count += 1;
        self.context = context;
    }

    /// Returns the context of the only field. The test suite of the W3C specification requires that a receiver
    /// rejects two fields (`test_traceparent_duplicated`).
    fn context(self) -> Option<Context> {
        self.context.filter(|_| self.count == 1)
    }
}
