//! Widths of text on a terminal.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// Returns the number of columns of a plain text.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Cuts a text to at most `room` columns, with an ellipsis for the missing end.
pub(crate) fn cut(text: &str, room: usize) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let kept = fitting(text.chars(), room.saturating_sub(1));
    Cow::Owned(text.chars().take(kept).chain(['…']).collect())
}

/// Shortens a text to at most `room` columns, with an ellipsis before the last two thirds. The ends of paths and
/// generated names distinguish them.
pub(crate) fn shorten(text: &str, room: usize) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let ends = room.saturating_sub(1);
    let head = fitting(text.chars(), ends / 3);
    let tail = fitting(text.chars().rev(), ends - ends / 3);
    let skipped = text.chars().count() - tail;
    Cow::Owned(text.chars().take(head).chain(['…']).chain(text.chars().skip(skipped)).collect())
}

/// Returns the number of characters that fit.
fn fitting(characters: impl Iterator<Item = char>, room: usize) -> usize {
    let widths = characters.scan(0, |taken, c| {
        *taken += columns(c);
        Some(*taken)
    });
    widths.take_while(|taken| *taken <= room).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::plain;

    #[test]
    fn an_ellipsis_replaces_removed_text() {
        assert_eq!((cut("abcdef", 6), cut("abcdef", 4)), ("abcdef".into(), "abc…".into()));
        assert_eq!((shorten("abcdef", 6), shorten("abcdefgh", 6)), ("abcdef".into(), "a…efgh".into()));
        assert_eq!((cut("大大大", 4), shorten("大大大大大", 8)), ("大…".into(), "大…大大".into()));
    }

    proptest! {
        #[test]
        fn texts_fit_the_width(text in any::<String>(), room in 1_usize..40) {
            let text = plain(&text);
            for shown in [cut(&text, room), shorten(&text, room)] {
                prop_assert!(width(&shown) <= room, "{shown}");
                prop_assert!(!shown.chars().any(char::is_control));
                prop_assert_eq!(shown == text, width(&text) <= room);
            }
        }
    }
}
