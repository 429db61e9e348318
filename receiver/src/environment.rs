//! Environment variables, behind a function so that tests need not change the process's own.

use std::fmt;

/// Looks up an environment variable: [`process`], or a test's own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable of this process; one that is no UTF-8 counts as unset.
#[must_use]
pub fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A variable's value. Set but empty is unset, as the OpenTelemetry specification has it.
#[must_use]
pub fn value(environment: Environment<'_>, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.trim().is_empty())
}

/// A variable that was set to something without meaning. The specification wants a warning and the default, no failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it, and what it should be.
    pub problem: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=`{}` is ignored: {}", self.variable, self.value, self.problem)
    }
}
