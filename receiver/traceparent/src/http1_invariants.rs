//! The invariant of [`find`] for every HTTP/1 payload, shared by the property tests and the fuzz target.

use super::{LIMIT, Protocols, SpanContext, find};

/// Panics if the result differs from the result of `httparse`, a parser of another design.
pub fn check(payload: &[u8]) {
    assert_eq!(find_http1(payload), find_by_httparse(&payload[..payload.len().min(LIMIT)]));
}

fn find_http1(payload: &[u8]) -> Option<SpanContext> {
    find(payload, Protocols::default())
}

/// Returns the context of the fields that `httparse` finds after the first line. `httparse` is less strict, so the line
/// ends are checked here.
fn find_by_httparse(payload: &[u8]) -> Option<SpanContext> {
    let (first, rest) = payload.split_at(payload.windows(2).position(|bytes| bytes == b"\r\n")?);
    if first.iter().all(u8::is_ascii_hexdigit) || first.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return None;
    }
    let rest = &rest[2..];
    // The shortest line has three bytes.
    let mut headers = [httparse::EMPTY_HEADER; LIMIT / 3];
    match httparse::parse_headers(rest, &mut headers).ok()? {
        httparse::Status::Complete((end, headers)) => only_field(&rest[..end], headers, b""),
        httparse::Status::Partial => {
            let end = rest.windows(2).rposition(|bytes| bytes == b"\r\n").map_or(0, |end| end + 2);
            let (lines, cut) = rest.split_at(end);
            let head = [lines, b"\r\n"].concat();
            let mut headers = [httparse::EMPTY_HEADER; LIMIT / 3];
            let parsed = httparse::parse_headers(&head, &mut headers).expect("a part of a sound header section");
            only_field(rest, parsed.unwrap().1, cut)
        }
    }
}

/// Returns the context of the only `traceparent` field, unless the cut line after the fields has the name too.
fn only_field(head: &[u8], headers: &[httparse::Header<'_>], cut: &[u8]) -> Option<SpanContext> {
    const NAME: &str = "traceparent";
    let ends_without_return = |(at, byte): (usize, &u8)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r');
    if head.iter().enumerate().any(ends_without_return)
        || cut.get(..=NAME.len()).is_some_and(|cut| cut.eq_ignore_ascii_case(b"traceparent:"))
    {
        return None;
    }
    let mut fields = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(NAME));
    let field = fields.next().filter(|_| fields.next().is_none())?;
    // The unit tests check the parser of values.
    find_http1(&[b"first line\r\ntraceparent:", field.value, b"\r\n"].concat())
}
