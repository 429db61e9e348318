//! HTTP/1: a finite automaton for the fields of one header section (RFC 9112, sections 2 and 5). It finds the value of `traceparent`.
//!
//! The payload begins with a start line, or with the rest of a line that began in an earlier packet. Neither is a
//! field, so the automaton skips the first line. All other lines up to the empty line are fields. The text after the
//! empty line is a body or the next message, and can never be a field. A payload is rejected if its first line is empty
//! or the size of a chunk (RFC 9112, section 7.1), because a body may follow.
//!
//! One case is ambiguous: the payload can begin within a body. It is rejected at its first line that is not a field,
//! and a binary body at its first control character. A body in the form of a header section is accepted, because it
//! equals the second packet of a long header section.
//!
//! The grammar is stricter than the one of many servers: it rejects lines that end without a carriage return, folded lines, and
//! blanks before the colon. Request smuggling uses them to make two parsers disagree on the end of a header section.
//!
//! The transitions are in two tables, so a byte costs no branch. The verifier follows each branch of each byte.

use core::ops::Range;

/// The lower-case name of the field.
pub const NAME: [u8; 11] = *b"traceparent";

/// A malformed header section, a body, or a second field.
const REJECTED: u8 = 0;
/// The first line. All characters so far are hexadecimal digits.
const SIZE: u8 = 1;
/// The first line.
const FIRST: u8 = 2;
/// The states of lines before the field: `BEFORE + LINE` to `BEFORE + RETURN`.
const BEFORE: u8 = 3;
/// The states of lines after the field.
const AFTER: u8 = BEFORE + RETURN + 1;
/// After the carriage return of the empty line.
const EMPTY: u8 = AFTER + RETURN + 1;
/// After a header section with the field.
const END: u8 = EMPTY + 1;
/// Between the colon of the field and its value.
const SPACE: u8 = END + 1;
/// In the value of the field.
const TEXT: u8 = SPACE + 1;
/// After the carriage return of the field.
const FIELD_RETURN: u8 = TEXT + 1;
/// Number of states.
const STATES: u8 = FIELD_RETURN + 1;

/// At the start of a line. The next numbers are the states after one to all characters of [`NAME`].
const LINE: u8 = 0;
/// After all characters of [`NAME`].
const NAMED: u8 = NAME.len() as u8;
/// In another name.
const OTHER: u8 = NAMED + 1;
/// After the colon of another field.
const VALUE: u8 = OTHER + 1;
/// After the carriage return of a line.
const RETURN: u8 = VALUE + 1;

/// Bits of a state in an entry of the table. The bits above are the kind of the byte.
const STATE_BITS: u32 = 6;
/// Bits of a class of bytes.
const CLASS_BITS: u32 = 4;

/// Number of kinds of bytes, a power of two.
pub const KINDS: usize = 4;
/// A byte before the value, from the colon on.
const SPACE_KIND: u8 = 1;
/// A byte of the value that is not white space.
const TEXT_KIND: u8 = 2;

/// The entry before the first byte.
pub const START: u8 = SIZE;

/// Returns the entry after a byte.
#[must_use]
#[inline(always)]
pub fn next(entry: u8, byte: u8) -> u8 {
    const CLASS: usize = (1 << CLASS_BITS) - 1;
    let class = usize::from(TABLES.classes[usize::from(byte)]) & CLASS;
    TABLES.entries[usize::from(state(entry)) << CLASS_BITS | class]
}

/// Returns the state of an entry.
#[inline(always)]
const fn state(entry: u8) -> u8 {
    const MASK: u8 = (1 << STATE_BITS) - 1;
    entry & MASK
}

/// Returns the kind of the byte before an entry.
#[must_use]
#[inline(always)]
pub const fn kind(entry: u8) -> usize {
    (entry >> STATE_BITS) as usize
}

/// Returns the place of the field's value without the white space around it; `None` if there is no unambiguous field.
///
/// `last` is the index of the last byte of each kind.
#[must_use]
#[inline(always)]
pub const fn value(entry: u8, last: &[u32; KINDS]) -> Option<Range<u32>> {
    let state = state(entry);
    if state < AFTER || state > END {
        return None;
    }
    let (start, end) = (last[SPACE_KIND as usize] + 1, last[TEXT_KIND as usize] + 1);
    // An empty value has no text.
    Some(start..if end < start { start } else { end })
}

/// The transitions. Bytes with equal transitions are one class.
struct Tables {
    classes: [u8; 256],
    entries: [u8; 1 << (STATE_BITS + CLASS_BITS)],
}

static TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Self {
        let mut tables = Self { classes: [0; 256], entries: [0; 1 << (STATE_BITS + CLASS_BITS)] };
        let mut classes = 0;
        let mut byte = 0;
        while byte < 256 {
            let mut class = 0;
            while class < classes && !tables.has(class, byte as u8) {
                class += 1;
            }
            if class == classes {
                tables.add(class, byte as u8);
                classes += 1;
            }
            tables.classes[byte] = class;
            byte += 1;
        }
        tables
    }

    /// Returns true if a byte has the transitions of a class.
    const fn has(&self, class: u8, byte: u8) -> bool {
        let mut state = 0;
        while state < STATES {
            if self.entries[index(state, class)] != entry(state, byte) {
                return false;
            }
            state += 1;
        }
        true
    }

    /// Adds the transitions of a byte as a class.
    const fn add(&mut self, class: u8, byte: u8) {
        let mut state = 0;
        while state < STATES {
            self.entries[index(state, class)] = entry(state, byte);
            state += 1;
        }
    }
}

const fn index(state: u8, class: u8) -> usize {
    assert!(state >> STATE_BITS == 0 && class >> CLASS_BITS == 0);
    (state as usize) << CLASS_BITS | class as usize
}

/// Returns the state after a byte, with the kind of the byte.
const fn entry(state: u8, byte: u8) -> u8 {
    let state = follow(state, byte);
    let kind = match state {
        SPACE => SPACE_KIND,
        TEXT if !is_blank(byte) => TEXT_KIND,
        _ => 0,
    };
    kind << STATE_BITS | state
}

/// Returns the state after a byte.
const fn follow(state: u8, byte: u8) -> u8 {
    match state {
        SIZE if byte.is_ascii_hexdigit() => SIZE,
        SIZE if byte == b'\r' => REJECTED,
        SIZE | FIRST => within(byte, FIRST, BEFORE + RETURN),
        BEFORE..AFTER => in_line(BEFORE, state - BEFORE, byte),
        AFTER..EMPTY => in_line(AFTER, state - AFTER, byte),
        EMPTY => at_end(byte, END),
        END => END,
        SPACE if is_blank(byte) => SPACE,
        SPACE | TEXT => within(byte, TEXT, FIELD_RETURN),
        FIELD_RETURN => at_end(byte, AFTER + LINE),
        _ => REJECTED,
    }
}

/// Returns the state after a byte of a line after the first. `lines` is [`BEFORE`] or [`AFTER`].
const fn in_line(lines: u8, state: u8, byte: u8) -> u8 {
    match (state, byte) {
        (LINE, b'\r') if lines == AFTER => EMPTY,
        (VALUE, _) => within(byte, lines + VALUE, lines + RETURN),
        (RETURN, _) => at_end(byte, lines + LINE),
        (LINE, b':') => REJECTED,
        (NAMED, b':') if lines == BEFORE => SPACE,
        (NAMED, b':') => REJECTED,
        (_, b':') => lines + VALUE,
        (LINE..NAMED, _) if byte.to_ascii_lowercase() == NAME[state as usize] => lines + state + 1,
        _ if is_token(byte) => lines + OTHER,
        _ => REJECTED,
    }
}

/// Returns the state after a byte within a line: `text`, or `end` after the carriage return.
const fn within(byte: u8, text: u8, end: u8) -> u8 {
    match byte {
        b'\r' => end,
        b'\t' => text,
        _ if byte.is_ascii_control() => REJECTED,
        _ => text,
    }
}

/// Returns the state after a byte that follows a carriage return: `line` after the line feed.
const fn at_end(byte: u8, line: u8) -> u8 {
    if byte == b'\n' { line } else { REJECTED }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns true for a character of a field's name (`tchar` in RFC 9110, section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}
