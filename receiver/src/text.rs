//! Foreign text: what a collector, a container runtime or a cgroup's name contributes to the log and the terminal.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// The text with everything written out that a terminal would act on or not show: control characters, other white space
/// than blanks, and characters without a width such as those that turn the direction of writing.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let shows = |c: char| c == ' ' || (!c.is_whitespace() && c.width().is_some_and(|width| width > 0));
    if text.chars().all(shows) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(2 * text.len());
    for c in text.chars() {
        match c {
            c if shows(c) => plain.push(c),
            c if c.is_ascii() => plain.extend(c.escape_default()),
            c => plain.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(plain)
}

/// At most `limit` characters of a [`plain`] text, with an ellipsis where it was longer.
pub(crate) fn foreign(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => plain(text).into_owned(),
        Some((end, _)) => format!("{}…", plain(&text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        for (text, shown) in [
            ("web-0", "web-0"),
            ("a\x1b[2Jb\n\0", "a\\u{1b}[2Jb\\n\\u{0}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("evil\u{202e}txt", "evil\\u{202e}txt"),
            ("a\u{a0}b\u{2028}c", "a\\u{a0}b\\u{2028}c"),
            ("größe 大", "größe 大"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn foreign_text_is_one_short_line() {
        assert_eq!(foreign("busy\nERROR undercurrent: disk is gone\r", 20), "busy\\nERROR undercurr…");
        assert_eq!(foreign("größe", 5), "größe");
    }
}
