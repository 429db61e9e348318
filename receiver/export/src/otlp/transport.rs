//! The interface of transports.

use prost::bytes::Bytes;

use super::{destination::Destination, failure::Failure};
use crate::encoding::Encoding;

/// A connection to one endpoint for one kind of telemetry. Requests are encoded by the caller, so a transport knows no
/// messages.
pub(super) trait Transport: Send + 'static {
    /// Returns the destination of the requests.
    fn destination(&self) -> &Destination;

    /// Returns the encoding of the requests.
    fn encoding(&self) -> Encoding;

    /// Sends an encoded request once, with the headers, the compression and the time limit of the settings.
    fn send(&mut self, request: Bytes) -> impl Future<Output = Result<Reply, Failure>> + Send;
}

/// The reply to an accepted request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// The number of rejected items.
    pub(super) rejected: u64,
    /// The collector's message: the reason of a rejection, or a warning.
    pub(super) message: String,
}
