//! Odd but plausible values for tests of parsers: valid values with the edits that people, templates and editors make.

use std::fmt::{Debug, Display};

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

/// Asserts that an accepted text has an equal value after it was printed, and that a refusal quotes nothing but the text or a part of it.
pub fn assert_read_back_or_refused<T, E>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<(), TestCaseError>
where
    T: Debug + Display + PartialEq,
    E: Debug + Display,
{
    match parse(text) {
        Ok(value) => {
            let printed = value.to_string();
            let again = parse(&printed);
            prop_assert!(
                again.as_ref().is_ok_and(|again| *again == value),
                "{text:?}: {value:?} became {printed:?}, {again:?}"
            );
        }
        Err(error) => {
            let message = error.to_string();
            let quoted = message.split('`').nth(1);
            prop_assert!(quoted.is_none_or(|part| text.contains(part)), "{text:?}: the message is {message:?}");
        }
    }
    Ok(())
}
