//! Formats errors with their causes.

use std::error::Error;

/// Formats an error and its causes on one line. A cause that the previous message contains already is omitted.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string);
    causes.fold(String::new(), |message, cause| match message.as_str() {
        "" => cause,
        _ if message.contains(&cause) => message,
        _ => format!("{message}: {cause}"),
    })
}
