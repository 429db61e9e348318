//! Values, and bytes of real clients and servers, for tests.

use std::fs;

use tokio::io::{AsyncReadExt, DuplexStream};

use opentelemetry::trace::{SpanContext, TraceFlags, TraceState};

/// A sampled value of version 00: the example of the specification.
pub(super) const VALUE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Returns a context of another process.
pub(super) fn remote(trace: u128, span: u64, flags: TraceFlags) -> SpanContext {
    SpanContext::new(trace.into(), span.into(), flags, true, TraceState::NONE)
}

/// Returns the context of [`VALUE`].
pub(super) fn context() -> SpanContext {
    remote(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, TraceFlags::SAMPLED)
}

/// Returns the value of a context in version 00.
pub(super) fn format(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
}

/// Another value, which is not sampled.
pub(super) const OTHER: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Returns the bytes that arrive at an end of a pipe, up to and including a text.
pub(super) async fn receive(end: &mut DuplexStream, text: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    while !received.ends_with(text) {
        assert_ne!(end.read_buf(&mut received).await.expect("an open pipe"), 0, "no more bytes");
    }
    received
}

/// Returns the sorted names of a folder's fixtures in which a parser finds [`context`].
pub(super) fn with_context(folder: &str, find: impl Fn(&[u8]) -> Option<SpanContext>) -> Vec<String> {
    let folder = format!("{}/receiver/fixtures/traceparent/{folder}", env!("UNDERCURRENT_WORKSPACE"));
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    let mut names: Vec<String> = files
        .filter(|path| find(&fs::read(path).expect("a fixture")) == Some(context()))
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
