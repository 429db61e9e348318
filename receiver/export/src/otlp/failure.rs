//! Failures of requests, independent of the protocol.

use std::time::Duration;

use crate::text::foreign;

/// The longest delay that a server can request.
pub(super) const LONGEST_THROTTLE: Duration = Duration::from_secs(300);

/// The number of characters of a collector's message that are logged.
const MESSAGE: usize = 500;

/// The `error.type` of rejected items that the semantic conventions define.
pub(super) const REJECTED: &str = "rejected";

/// A request that the collector did not accept completely. Each transport classifies the errors of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// The delay that the collector requested before the next attempt. It has no effect on failures that are never retried.
    pub(super) delay: Option<Duration>,
    /// The `error.type` in exported metrics.
    pub(super) reason: &'static str,
    /// The cause, as text for the log.
    pub(super) cause: String,
}

/// The kind of a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection failed or ended, or the collector is unavailable.
    Connection,
    /// The collector did not answer in time.
    Timeout,
    /// The collector may accept the request later.
    Retryable,
    /// The collector never accepts the request.
    Refused(Refusal),
    /// The request exceeds a limit of the collector.
    TooLarge,
    /// The collector accepted the request without this number of items.
    PartialSuccess(u64),
}

/// The reason of a permanent refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The credentials are missing or insufficient.
    Credentials,
    /// The server has no receiver for this kind of telemetry.
    NoReceiver,
    /// The content of this request is invalid. The collector may accept other requests.
    Content,
    /// The server probably expects another protocol.
    Protocol,
    /// The server does not accept the encoding.
    Encoding,
    /// The server names another address.
    Redirect,
    /// Any other reason.
    Other,
}

/// The reaction to a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Retry after the back-off.
    Retry,
    /// Retry after the delay that the server requested, at most [`LONGEST_THROTTLE`].
    Throttled(Duration),
    /// Never retry the request.
    Permanent,
}

impl Failure {
    /// Returns a failure with the message of a server, which is made safe for the log.
    pub(super) fn new(kind: FailureKind, reason: &'static str, message: &str) -> Self {
        Self { kind, delay: None, reason, cause: foreign(message, MESSAGE) }
    }

    /// Returns the failure of a request with rejected items.
    pub(super) fn partial(rejected: u64, message: &str) -> Self {
        Self::new(FailureKind::PartialSuccess(rejected), REJECTED, message)
    }

    /// Returns the reaction to the failure.
    pub(super) fn verdict(&self) -> Verdict {
        match (self.kind, self.delay) {
            (FailureKind::Connection | FailureKind::Timeout | FailureKind::Retryable, Some(delay)) => {
                Verdict::Throttled(delay.min(LONGEST_THROTTLE))
            }
            (FailureKind::Connection | FailureKind::Timeout | FailureKind::Retryable, None) => Verdict::Retry,
            (FailureKind::Refused(_) | FailureKind::TooLarge | FailureKind::PartialSuccess(_), _) => Verdict::Permanent,
        }
    }
}
