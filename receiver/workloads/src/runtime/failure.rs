//! The reasons for failed calls to a source, and for unknown metadata.

use std::{error::Error, fmt, io, time::Duration};

use tonic::Code;

use crate::{causes::chain, reader::Refusal, text::foreign};

/// The timeout of a lookup in one source, including all its calls.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// The reason for a failed call to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The source does not have the container.
    NotFound,
    /// The server does not implement this API.
    Unsupported,
    /// No server listens.
    Gone,
    /// Too many lookups wait for the source.
    Busy,
    /// Permission denied.
    Denied,
    /// The owner of the socket, of its directory or of the process behind it is not the required user.
    Untrusted,
    /// The server returned an error.
    Refused,
    /// The server closed the connection before the end of the reply, or the reply was too long.
    Closed,
    /// The reply is malformed, or describes another object.
    Malformed,
    /// The reply did not arrive in time.
    Timeout,
}

impl Reason {
    /// Returns the name in lower snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Unsupported => "unsupported",
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Untrusted => "untrusted",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
        }
    }
}

impl From<&io::Error> for Reason {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            _ if error.get_ref().is_some_and(|cause| cause.is::<Refusal>()) => Self::Untrusted,
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Gone,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::FileTooLarge => Self::Malformed,
            _ => Self::Closed,
        }
    }
}

/// The maximum length of an error message of a source, in characters.
const DETAIL: usize = 200;

/// A failed call.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// The error message, on one line.
    detail: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, detail: impl fmt::Display) -> Self {
        Self { reason, detail: foreign(&detail.to_string(), DETAIL) }
    }

    /// Creates the failure for a reply about another object.
    pub(super) fn another(asked: &str, answered: &str) -> Self {
        Self::new(Reason::Malformed, format_args!("expected {asked:?}, got {answered:.80?}"))
    }

    pub(super) fn timeout(limit: Duration) -> Self {
        Self::new(Reason::Timeout, format_args!("no answer within {} s", limit.as_secs()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Reason::from(&error), chain(&error))
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        let reason = match (cause::<io::Error>(&status), status.code()) {
            (Some(error), _) => Reason::from(error),
            (None, Code::NotFound) => Reason::NotFound,
            (None, Code::Unimplemented) => Reason::Unsupported,
            (None, Code::PermissionDenied | Code::Unauthenticated) => Reason::Denied,
            (None, Code::DeadlineExceeded) => Reason::Timeout,
            (None, Code::Unavailable | Code::Cancelled) => Reason::Closed,
            // The client's own errors for malformed or oversized replies.
            (None, Code::Internal | Code::OutOfRange | Code::Unknown) => Reason::Malformed,
            (None, _) => Reason::Refused,
        };
        Self::new(reason, chain(&status))
    }
}

/// Returns the first error of a type in the chain of causes.
pub(super) fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// The reason why the metadata of a container are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unknown {
    /// No source is available. A retry can succeed once the socket of a runtime exists.
    #[error("no container runtime or API server is available")]
    NobodyToAsk,
    /// No source has the container: it has been removed, or its runtime is not available here.
    #[error("no available container runtime has the container")]
    NotFound,
    /// A source did not respond. A later retry can succeed.
    #[error("the container runtime did not respond ({})", .0.as_str())]
    NoAnswer(Reason),
}

impl Unknown {
    /// Returns the name in lower snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NobodyToAsk => "nobody_to_ask",
            Self::NotFound => "not_found",
            Self::NoAnswer(_) => "no_answer",
        }
    }

    /// Returns the reason after a failed call to a single source.
    pub(super) fn because(reason: Reason) -> Self {
        match reason {
            Reason::NotFound => Self::NotFound,
            Reason::Unsupported => Self::NobodyToAsk,
            reason => Self::NoAnswer(reason),
        }
    }
}
