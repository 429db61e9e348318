//! HTTP/1: the `traceparent` of one header section. [`http1`] has the grammar.

use undercurrent_ebpf::abi::http1::{self, KINDS, START};

use super::{SpanContext, context};

#[cfg(test)]
mod tests;

/// Returns the context of the header section that a payload begins with or within.
pub(super) fn find(payload: &[u8]) -> Option<SpanContext> {
    context::parse(value(payload)?)
}

/// Returns the value of the only `traceparent` field, without the white space around it.
fn value(payload: &[u8]) -> Option<&[u8]> {
    let (mut entry, mut last) = (START, [0; KINDS]);
    for (index, byte) in (0..).zip(payload) {
        entry = http1::next(entry, *byte);
        last[http1::kind(entry)] = index;
    }
    let place = http1::value(entry, &last)?;
    payload.get(place.start as usize..place.end as usize)
}
