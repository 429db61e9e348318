//! Says once when an output stops working and once when it works again.

use std::fmt::Display;

/// What was last said about an output.
pub(super) struct Health {
    output: &'static str,
    failing: Option<&'static str>,
    silent: u64,
}

impl Health {
    pub(super) fn new(output: &'static str) -> Self {
        Self { output, failing: None, silent: 0 }
    }

    /// Reports a failure, unless the one before had the same reason.
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

    /// Reports that it works again, if it did not.
    pub(super) fn works(&mut self) {
        if let Some(reason) = self.failing.take() {
            let failures = self.silent + 1;
            tracing::info!(output = self.output, reason, failures, "{} output works again", self.output);
        }
    }
}
