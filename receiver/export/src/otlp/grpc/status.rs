//! Classifies the statuses of gRPC by the OTLP specification.

use std::error::Error as _;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{
    causes::chain,
    otlp::failure::{Failure, FailureKind, Refusal},
};

/// Returns the failure of a call.
pub(in crate::otlp) fn failure(status: &Status) -> Failure {
    let code = code(status);
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let kind = match code {
        Code::Unavailable => FailureKind::Connection,
        Code::DeadlineExceeded => FailureKind::Timeout,
        Code::Cancelled | Code::Aborted | Code::OutOfRange | Code::DataLoss => FailureKind::Retryable,
        // A collector that returns a delay recovers. Otherwise, a message of this size is always refused.
        Code::ResourceExhausted if delay.is_some() => FailureKind::Retryable,
        Code::ResourceExhausted => FailureKind::TooLarge,
        Code::Unauthenticated | Code::PermissionDenied => FailureKind::Refused(Refusal::Credentials),
        Code::Unimplemented | Code::NotFound => FailureKind::Refused(Refusal::NoReceiver),
        Code::InvalidArgument => FailureKind::Refused(Refusal::Content),
        Code::Internal | Code::Unknown => FailureKind::Refused(Refusal::Protocol),
        Code::Ok | Code::AlreadyExists | Code::FailedPrecondition => FailureKind::Refused(Refusal::Other),
    };
    Failure { delay, ..Failure::new(kind, reason(code), &explain(status)) }
}

/// Returns the code of a status. Without a status from the server, the transport failed: the library then returns a
/// code that depends on the place of the failure, for example `Unknown` for a connection that was reset.
fn code(status: &Status) -> Code {
    match (status.source().is_some(), status.code()) {
        (true, _) if is_own_timer(status) => Code::DeadlineExceeded,
        (true, _) if has_timed_out(status) => Code::DeadlineExceeded,
        (true, _) => Code::Unavailable,
        (false, code) => code,
    }
}

/// Returns true if the library's timer of the call expired.
pub(super) fn is_own_timer(status: &Status) -> bool {
    status.source().is_some() && status.code() == Code::Cancelled && status.message().contains("Timeout")
}

/// Returns true if the connection ended because the other end did not answer a ping.
fn has_timed_out(status: &Status) -> bool {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<hyper::Error>()).any(hyper::Error::is_timeout)
}

/// Returns the `error.type` of a code: its name in lower snake case.
pub(in crate::otlp) fn reason(code: Code) -> &'static str {
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

fn explain(status: &Status) -> String {
    let message = status.message();
    match status.source().map(chain) {
        Some(cause) if cause.contains(message) => cause,
        Some(cause) => format!("{message}: {cause}"),
        None if message.is_empty() => "no message".to_owned(),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;
    use crate::otlp::failure::Verdict;

    #[test]
    fn only_the_specified_codes_are_retried() {
        let retried: Vec<&str> = (0..17)
            .map(|code| failure(&Status::new(Code::from_i32(code), "")))
            .filter(|failure| failure.verdict() == Verdict::Retry)
            .map(|failure| failure.reason)
            .collect();
        assert_eq!(retried, ["cancelled", "deadline_exceeded", "aborted", "out_of_range", "unavailable", "data_loss"]);
        let wait = Duration::from_secs(3);
        let details = ErrorDetails::with_retry_info(Some(wait));
        let status = Status::with_error_details(Code::ResourceExhausted, "later", details);
        assert_eq!(failure(&status).verdict(), Verdict::Throttled(wait));
    }
}
