//! The invariant of [`find`] for every HTTP/2 payload, shared by the property tests and the fuzz target.

use super::{Protocols, SpanContext, find};

/// Panics if a packet that ends earlier has another context. Fewer bytes can hide the context, and more bytes can make
/// it ambiguous.
pub fn check(payload: &[u8]) {
    const CUTS: usize = 16;
    let protocols = Protocols { http1: false, http2: true };
    let step = payload.len().div_ceil(CUTS).max(1);
    let ends = (0..payload.len()).step_by(step).chain([payload.len()]);
    let mut contexts: Vec<SpanContext> = ends.filter_map(|end| find(&payload[..end], protocols)).collect();
    contexts.dedup();
    assert!(contexts.len() <= 1, "{contexts:?}");
}
