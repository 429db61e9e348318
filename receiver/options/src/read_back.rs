//! The common property of the types of values.

use std::fmt::{Debug, Display};

use proptest::prelude::*;

/// Asserts that an accepted text has an equal value after it was printed, and that a refusal quotes nothing but the text or a part of it.
pub fn assert_read_back_or_refused<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<(), TestCaseError>
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
