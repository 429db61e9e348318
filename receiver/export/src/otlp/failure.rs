//! Classifies failed exports by the OTLP specification.

use std::{error::Error as _, fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{Items, Settings};
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

/// A failed call.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) verdict: Verdict,
    code: Code,
    items: Items,
    endpoint: String,
    /// True if TLS is used because the endpoint has no scheme.
    assumes_tls: bool,
    /// The cause, as text for the log.
    cause: String,
}

impl Failure {
    pub(super) fn new(status: &Status, items: Items, settings: &Settings) -> Self {
        Self {
            verdict: verdict(status),
            code: code(status),
            items,
            endpoint: settings.endpoint.to_string(),
            assumes_tls: settings.assumes_tls,
            cause: explain(status),
        }
    }

    /// Returns the `error.type`: the code's name in lower snake case.
    pub(super) fn reason(&self) -> &'static str {
        reason(self.code)
    }

    /// Returns true if the collector did not answer in time.
    pub(super) fn is_timeout(&self) -> bool {
        self.code == Code::DeadlineExceeded
    }

    /// Returns true if the collector answered that it accepts these items, but not this request.
    pub(super) fn is_about_content(&self) -> bool {
        self.code == Code::InvalidArgument
    }

    /// Returns the error with its remedy, without the consequence for the measurements.
    pub(super) fn explained(&self) -> String {
        format!("{}: {}{}", self.reason(), self.cause, self.advice())
    }

    fn advice(&self) -> String {
        let cure = cure(self.code, self.items).map_or_else(String::new, |cure| format!(". {cure}"));
        let assumed = if self.assumes_tls && self.code == Code::Unavailable {
            " No scheme given, TLS assumed; write http:// for plaintext."
        } else {
            ""
        };
        cure + assumed
    }
}

/// Returns the code of a status. Without a status from the server, the transport failed: the library then returns a
/// code that depends on the place of the failure, such as `Unknown` for a connection that was reset.
fn code(status: &Status) -> Code {
    match (status.source().is_some(), status.code()) {
        // The client's own timer.
        (true, Code::Cancelled) if status.message().contains("Timeout") => Code::DeadlineExceeded,
        (true, _) if has_timed_out(status) => Code::DeadlineExceeded,
        (true, _) => Code::Unavailable,
        (false, code) => code,
    }
}

/// Returns true if the connection ended because the other end did not answer a ping.
fn has_timed_out(status: &Status) -> bool {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<hyper::Error>()).any(hyper::Error::is_timeout)
}

/// Classifies a status by the specification's table of retryable codes. `RESOURCE_EXHAUSTED` is retryable only if
/// the server returns a delay.
pub(super) fn verdict(status: &Status) -> Verdict {
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    match (code(status), delay) {
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot deliver {} to {} ({}: {})", self.items.as_str(), self.endpoint, self.reason(), self.cause)?;
        f.write_str(match (self.verdict, self.items) {
            (Verdict::Permanent, Items::Metrics) => "; this snapshot is not retried, the next one is sent",
            (_, Items::Metrics) => "; retrying with the newest snapshot, totals are not affected",
            (Verdict::Permanent, Items::Spans) => "; these spans are lost, metrics are not affected",
            (_, Items::Logs) => "; metrics are not affected",
            (_, Items::Spans) => "; retrying, metrics are not affected",
        })?;
        f.write_str(&self.advice())
    }
}

fn cure(code: Code, items: Items) -> Option<&'static str> {
    Some(match code {
        Code::Unavailable if items == Items::Spans => {
            "Is a collector listening for OTLP/gRPC there (usually port 4317), and does plaintext or TLS match the scheme? \
             OTEL_EXPORTER_OTLP_TRACES_ENDPOINT sets the endpoint of spans, OTEL_TRACES_EXPORTER=none disables them."
        }
        Code::Unavailable => {
            "Is a collector listening for OTLP/gRPC there (usually port 4317), and does plaintext or TLS match the scheme?"
        }
        Code::DeadlineExceeded => {
            "The collector is slow, or packets are lost on the way to it; OTEL_EXPORTER_OTLP_TIMEOUT sets the limit. \
             The next attempts open new connections"
        }
        Code::Unauthenticated | Code::PermissionDenied => "Check OTEL_EXPORTER_OTLP_HEADERS",
        Code::Unimplemented | Code::NotFound if items == Items::Spans => {
            "Does the collector there have a traces pipeline with an OTLP receiver? `signals.slow_packets.enabled: false` \
             disables spans"
        }
        Code::Unimplemented | Code::NotFound if items == Items::Logs => {
            "Does the collector there have a logs pipeline with an OTLP receiver? OTEL_LOGS_EXPORTER=none keeps logs on \
             standard error"
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
