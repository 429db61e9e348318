//! Values, and bytes of real clients and servers, for tests.

use std::fs;

use tokio::io::{AsyncReadExt, DuplexStream};

use super::Context;

/// A sampled value of version 00: the example of the specification.
pub(super) const VALUE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The context of [`VALUE`].
pub(super) const CONTEXT: Context = Context {
    trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
    span: 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes(),
    sampled: true,
};

/// Returns the value of a context in version 00.
pub(super) fn format(context: &Context) -> String {
    let (trace, span) = (u128::from_be_bytes(context.trace), u64::from_be_bytes(context.span));
    format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(context.sampled))
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

/// Returns the sorted names of a folder's fixtures in which a parser finds [`CONTEXT`].
pub(super) fn with_context(folder: &str, find: impl Fn(&[u8]) -> Option<Context>) -> Vec<String> {
    let folder = format!("{}/fixtures/traceparent/{folder}", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    let mut names: Vec<String> = files
        .filter(|path| find(&fs::read(path).expect("a fixture")) == Some(CONTEXT))
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
