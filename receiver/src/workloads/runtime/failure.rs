//! Why a source did not answer.

use std::{error::Error, fmt, io};

use tonic::Code;

use crate::{causes::chain, reader::Refusal, text::foreign};

/// Why a source did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It knows no such container.
    NotFound,
    /// Something listens there that does not offer this API.
    Unsupported,
    /// Nobody listens.
    Gone,
    /// Too many questions wait for it already.
    Busy,
    /// It may not be asked.
    Denied,
    /// The owner of the socket, of its directory or of the process behind it is not the required user.
    Untrusted,
    /// It answered with an error.
    Refused,
    /// It ended the connection before its answer, or sent more than an answer may have.
    Closed,
    /// Its answer makes no sense, or is about something else.
    Malformed,
    /// It did not answer in time.
    Timeout,
}

impl Reason {
    /// Its name in lower snake case.
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
            _ => Self::Closed,
        }
    }
}

/// As much is kept of what a source says of its failure, in characters.
const DETAIL: usize = 200;

/// A call that was not answered.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// In the words of whoever noticed, on one line.
    detail: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, detail: impl fmt::Display) -> Self {
        Self { reason, detail: foreign(&detail.to_string(), DETAIL) }
    }

    /// An answer about something else than was asked for.
    pub(super) fn another(asked: &str, answered: &str) -> Self {
        Self::new(Reason::Malformed, format_args!("asked for {asked:?}, answered about {answered:.80?}"))
    }

    pub(super) fn timeout(limit: std::time::Duration) -> Self {
        Self::new(Reason::Timeout, format_args!("no answer within {} s", limit.as_secs()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.detail)
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
            // What the client itself says of bytes that are no answer, or are too many.
            (None, Code::Internal | Code::OutOfRange | Code::Unknown) => Reason::Malformed,
            (None, _) => Reason::Refused,
        };
        Self::new(reason, chain(&status))
    }
}

/// The first error of a type among an error and its causes.
pub(super) fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}
