//! Foreign text from collectors, container runtimes and cgroup names, for attributes, the log and the terminal.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// The limit of a workload's attribute in bytes: much longer than names, and short enough for every export.
pub const LONGEST: usize = 1024;

/// Escapes all characters that a terminal would interpret or hide: control characters, white space except blanks,
/// and characters without a width, including direction controls.
pub fn plain(text: &str) -> Cow<'_, str> {
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

/// Returns at most `limit` characters of a [`plain`] text, with an ellipsis if the text was longer.
pub fn foreign(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => plain(text).into_owned(),
        Some((end, _)) => format!("{}…", plain(&text[..end])),
    }
}

/// Escapes text for an attribute of at most `limit` bytes. Invisible characters and those that reorder others are
/// escaped; printable text is unchanged. Returns `None` if the escaped text exceeds the limit, because a cut name
/// could equal another name.
pub fn attribute(text: &str, limit: usize) -> Option<Cow<'_, str>> {
    // Escaping never shortens a text.
    if text.len() > limit {
        return None;
    }
    if text.chars().all(is_printable) {
        return Some(Cow::Borrowed(text));
    }
    let mut escaped = String::with_capacity(limit.min(2 * text.len()));
    for c in text.chars() {
        push(&mut escaped, c);
        if escaped.len() > limit {
            return None;
        }
    }
    Some(Cow::Owned(escaped))
}

/// Escapes text for an attribute, and cuts it at `limit` bytes with an ellipsis.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    const ELLIPSIS: char = '…';
    if let Some(whole) = attribute(text, limit) {
        return whole;
    }
    let mut short = String::new();
    for c in text.chars() {
        let before = short.len();
        push(&mut short, c);
        if short.len() + ELLIPSIS.len_utf8() > limit {
            short.truncate(before);
            break;
        }
    }
    short.push(ELLIPSIS);
    Cow::Owned(short)
}

fn push(text: &mut String, c: char) {
    match c {
        c if is_printable(c) => text.push(c),
        c if c.is_ascii() => text.extend(c.escape_default()),
        c => text.extend(c.escape_unicode()),
    }
}

/// Returns true if a character is visible, or shapes its neighbours like combining marks, joiners and variation
/// selectors. All other characters are control characters, line separators, direction controls, invisible
/// characters or noncharacters.
fn is_printable(c: char) -> bool {
    match c {
        // A direction mark, and characters without a glyph: the soft hyphen, the grapheme joiner, vowels and
        // fillers.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
        | '\u{3164}' | '\u{ffa0}' => false,
        // The zero-width space and direction marks. U+200C and U+200D between them are joiners, which words and
        // emoji contain.
        '\u{200b}' | '\u{200e}' | '\u{200f}' => false,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fff0}'..='\u{fffb}' => false,
        // Invisible musical characters and tag characters.
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e00ff}' => false,
        c => !c.is_control() && u32::from(c) & 0xfffe != 0xfffe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_stays_and_other_text_is_escaped() {
        for same in [
            "",
            "web-0",
            "größe 大",
            "e\u{301}",
            "हिन्दी",
            "น้ำ",
            "می\u{200c}خواهم",
            "👩\u{200d}💻 ❤\u{fe0f}",
            "a\u{a0}b",
            "a\\x0a\"'",
            "\u{fffd}",
        ] {
            assert!(matches!(attribute(same, 100), Some(Cow::Borrowed(text)) if text == same), "{same}");
        }
        for (text, escaped) in [
            ("a\x1b[2Jb\n\0\u{7f}", "a\\u{1b}[2Jb\\n\\u{0}\\u{7f}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("evil\u{202e}txt\u{2066}", "evil\\u{202e}txt\\u{2066}"),
            ("a\u{200b}b\u{feff}c\u{2028}", "a\\u{200b}b\\u{feff}c\\u{2028}"),
            ("a\u{e0041}\u{ffff}\u{3164}", "a\\u{e0041}\\u{ffff}\\u{3164}"),
        ] {
            assert_eq!(attribute(text, 100).as_deref(), Some(escaped));
        }
    }

    #[test]
    fn escaped_text_stays_within_the_limit() {
        assert_eq!(attribute("größe", 7).as_deref(), Some("größe"));
        assert_eq!(attribute("größe", 6), None);
        assert_eq!(attribute("ab\n", 4).as_deref(), Some("ab\\n"));
        assert_eq!(attribute("ab\n", 3), None);
        assert_eq!(shortened("größe", 7), "größe");
        assert_eq!(shortened("größer", 7), "grö…");
        assert_eq!(shortened("abc\u{202e}", 8), "abc…");
    }

    proptest::proptest! {
        #[test]
        fn attributes_are_printable_and_short(text: String, limit in 3_usize..50) {
            let attribute = attribute(&text, limit);
            let shortened = shortened(&text, limit);
            for text in attribute.iter().chain([&shortened]) {
                assert!(text.len() <= limit && text.chars().all(is_printable));
            }
            assert!(attribute.is_none_or(|whole| whole == shortened));
        }
    }

    #[test]
    fn control_characters_are_escaped() {
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
