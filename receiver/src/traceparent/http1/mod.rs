//! HTTP/1: the fields of one header section (RFC 9112, sections 2 and 5).
//!
//! The payload begins with a start line, or with the rest of a line that began in an earlier packet. Neither is a
//! field, so the parser skips the first line. All other lines up to the empty line are fields. The text after the
//! empty line is a body or the next message, and can never be a field. A payload is rejected if its first line is empty
//! or the size of a chunk (RFC 9112, section 7.1), because a body may follow.
//!
//! One case is ambiguous: the payload can begin within a body. It is rejected at its first line that is not a field,
//! and a binary body at its first control character. A body in the form of a header section is accepted, because it
//! equals the second packet of a long header section.
//!
//! The parser is stricter than many servers: it rejects lines that end without a carriage return, folded lines, and
//! blanks before the colon. Request smuggling uses them to make two parsers disagree on the end of a header section.

use super::{Context, Fields, NAME, context};

#[cfg(test)]
mod tests;

/// Returns the context of the header section that a payload begins with or within.
pub(super) fn find(payload: &[u8]) -> Option<Context> {
    let Line::Complete(first, mut rest) = line(payload)? else { return None };
    // An empty line or the size of a chunk: a body follows.
    if first.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut fields = Fields::default();
    loop {
        match line(rest)? {
            Line::Complete([], _) => break,
            Line::Complete(line, after) => {
                let (name, value) = field(line)?;
                if name.eq_ignore_ascii_case(NAME) {
                    fields.add(context::parse(value));
                }
                rest = after;
            }
            Line::Cut(line) => {
                add_cut(line, &mut fields)?;
                break;
            }
        }
    }
    fields.context()
}

/// The next line of a payload, without the line end.
enum Line<'a> {
    /// A line that ends in the payload, and the bytes after its end.
    Complete(&'a [u8], &'a [u8]),
    /// The start of a line that the payload does not contain completely. It can include the carriage return.
    Cut(&'a [u8]),
}

/// Splits the next line from a payload. Returns `None` at a control character that no header section contains.
fn line(payload: &[u8]) -> Option<Line<'_>> {
    let Some(end) = payload.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t') else {
        return Some(Line::Cut(payload));
    };
    let (line, end) = payload.split_at(end);
    match end {
        [b'\r', b'\n', rest @ ..] => Some(Line::Complete(line, rest)),
        [b'\r'] => Some(Line::Cut(payload)),
        _ => None,
    }
}

/// Splits a line into the name and the value of a field, without the optional white space around the value.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| !is_token(*byte))?;
    let (name, value) = line.split_at(colon);
    let value = value.strip_prefix(b":")?;
    // The line contains no other ASCII white space than blanks and tabs.
    (!name.is_empty()).then_some((name, value.trim_ascii()))
}

/// Counts the field of a cut line if its name is complete. Returns `None` if no field begins like this.
fn add_cut(line: &[u8], fields: &mut Fields) -> Option<()> {
    let may_be_name = line.iter().all(|byte| is_token(*byte));
    if may_be_name || line == b"\r" {
        return Some(());
    }
    let (name, _) = field(line)?;
    if name.eq_ignore_ascii_case(NAME) {
        fields.add(None);
    }
    Some(())
}

/// Returns true for a character of a field's name (`tchar` in RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
