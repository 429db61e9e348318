//! Reports the first failure of an output and its recovery.

use std::fmt::Display;

/// The last reported state of an output.
pub(super) struct Health {
    output: &'static str,
    failing: Option<&'static str>,
    silent: u64,
}

impl Health {
    pub(super) fn new(output: &'static str) -> Self {
        Self { output, failing: None, silent: 0 }
    }

    /// Logs a failure, unless the previous failure had an equal reason.
    pub(super) fn failed(&mut self, reason: &'static str, error: &dyn Display) {
        if self.failing == Some(reason) {
            self.silent += 1;
            tracing::debug!(output = self.output, reason, "{error}");
        } else {
            self.failing = Some(reason);
            self.silent = 0;
            tracing::warn!(output = self.output, reason, "{error}");
        }
    }

    /// Logs the recovery after a failure.
    pub(super) fn works(&mut self) {
        if let Some(reason) = self.failing.take() {
            let failures = self.silent + 1;
            tracing::info!(output = self.output, reason, failures, "{} output works again", self.output);
        }
    }
}
