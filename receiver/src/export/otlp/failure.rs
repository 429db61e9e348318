//! Classifies failed exports by the OTLP specification.

use std::{error::Error as _, fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::Items;
use crate::{causes::chain, text::foreign};

/// The longest delay that a server can request.
pub(super) const LONGEST_THROTTLE: Duration = Duration::from_secs(300);

/// The reaction to a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Retry after the back-off.
    Retry,
    /// Retry after the delay in the server's `RetryInfo`, at most [`LONGEST_THROTTLE`].
    Throttled(Duration),
    /// Never retry the request.
    Permanent,
}

/// Classifies a status by the specification's table of retryable codes. `RESOURCE_EXHAUSTED` is retryable only if
/// the server returns a delay.
pub(super) fn verdict(status: &Status) -> Verdict {
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    match (status.code(), delay) {
        (
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss,
            Some(delay),
        ) => Verdict::Throttled(delay.min(LONGEST_THROTTLE)),
        (
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss,
            None,
        ) => Verdict::Retry,
        _ => Verdict::Permanent,
    }
}

/// Returns the code's name in lower snake case.
pub(super) fn reason(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// A failed delivery, formatted for the log.
pub(super) struct Failure<'a> {
    pub(super) endpoint: &'a str,
    /// True if TLS is used because the endpoint has no scheme.
    pub(super) assumes_tls: bool,
    pub(super) status: &'a Status,
    pub(super) verdict: Verdict,
    pub(super) items: Items,
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = reason(self.status.code());
        let items = match self.items {
            Items::Metrics => "metrics",
            Items::Spans => "spans",
        };
        write!(f, "cannot deliver {items} to {} ({code}: {})", self.endpoint, explain(self.status))?;
        f.write_str(match (self.verdict, self.items) {
            (Verdict::Permanent, Items::Metrics) => "; this snapshot is not retried, the next one is sent",
            (_, Items::Metrics) => "; retrying with the newest snapshot, totals are not affected",
            (Verdict::Permanent, Items::Spans) => "; these spans are lost, metrics are not affected",
            (_, Items::Spans) => "; retrying, metrics are not affected",
        })?;
        cure(self.status.code(), self.items).map_or(Ok(()), |cure| write!(f, ". {cure}"))?;
        if self.assumes_tls && self.status.code() == Code::Unavailable {
            f.write_str(" No scheme given, TLS assumed; write http:// for plaintext.")?;
        }
        Ok(())
    }
}

fn cure(code: Code, items: Items) -> Option<&'static str> {
    Some(match code {
        Code::Unavailable if items == Items::Spans => {
            "Is a collector listening for OTLP/gRPC there, and does plaintext or TLS match the scheme? \
             OTEL_EXPORTER_OTLP_TRACES_ENDPOINT sets the endpoint of spans, OTEL_TRACES_EXPORTER=none disables them."
        }
        Code::Unavailable => {
            "Is a collector listening for OTLP/gRPC there, and does plaintext or TLS match the scheme?"
        }
        Code::DeadlineExceeded => {
            "The collector responds too slowly or not at all; OTEL_EXPORTER_OTLP_TIMEOUT sets the limit"
        }
        Code::Unauthenticated | Code::PermissionDenied => "Check OTEL_EXPORTER_OTLP_HEADERS",
        Code::Unimplemented | Code::NotFound if items == Items::Spans => {
            "Does the collector there have a traces pipeline with an OTLP receiver? `signals.slow_packets.enabled: false` \
             disables spans"
        }
        Code::Unimplemented | Code::NotFound => {
            "Does the collector there have a metrics pipeline with an OTLP receiver?"
        }
        Code::Internal | Code::Unknown => "Is that port OTLP/gRPC (usually 4317), and not OTLP/HTTP (4318)?",
        Code::ResourceExhausted => "The collector refuses the load or the size of messages; check its limits",
        _ => return None,
    })
}

/// The number of characters of a collector's message that are logged.
const MESSAGE: usize = 500;

/// Formats a collector's message for the log.
pub(super) fn quoted(message: &str) -> String {
    foreign(message, MESSAGE)
}

fn explain(status: &Status) -> String {
    let message = status.message();
    let text = match status.source().map(chain) {
        Some(cause) if cause.contains(message) => cause,
        Some(cause) => format!("{message}: {cause}"),
        None if message.is_empty() => "no message".to_owned(),
        None => message.to_owned(),
    };
    quoted(&text)
}
