//! Environment variables behind a function, so that tests need not change the process's environment.

use std::fmt;

/// A function that returns an environment variable: [`process`], or a function of a test.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns a variable of this process. A variable with invalid UTF-8 counts as unset.
#[must_use]
pub fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a variable's value. An empty variable counts as unset, as the OpenTelemetry specification requires.
#[must_use]
pub fn value(environment: Environment<'_>, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.trim().is_empty())
}

/// A variable with an invalid value. The specification requires a warning and the default value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The variable.
    pub variable: &'static str,
    /// The invalid value.
    pub value: String,
    /// The reason, and the valid values.
    pub problem: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=`{}` is ignored: {}", self.variable, self.value, self.problem)
    }
}
