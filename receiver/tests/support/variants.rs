//! Odd but plausible values for tests of parsers: valid values with the edits that people, templates and editors make.

use proptest::{prelude::*, sample::select};

/// An edit of a value.
type Edit = fn(&str) -> String;

const EDITS: [Edit; 16] = [
    str::to_owned,
    |value| format!(" {value}"),
    |value| format!("{value}\t"),
    |value| format!("{value}\r\n"),
    str::to_uppercase,
    |value| format!("\"{value}\""),
    |value| format!("'{value}'"),
    |value| format!("0{value}"),
    |value| format!("+{value}"),
    |value| format!("-{value}"),
    |value| format!("{value}/"),
    |value| format!("{value},"),
    |value| value.chars().filter(|character| !character.is_ascii_alphabetic()).collect(),
    |value| value.chars().filter(|character| !character.is_ascii_digit()).collect(),
    |value| value.replace('1', "\u{ff11}"),
    |value| format!("{value}{value}"),
];

/// Returns a strategy of valid values after two edits each.
pub fn variants(valid: &'static [&'static str]) -> impl Strategy<Value = String> {
    (select(valid), select(&EDITS[..]), select(&EDITS[..])).prop_map(|(value, first, second)| second(&first(value)))
}
