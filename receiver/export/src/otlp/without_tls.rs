//! Replaces `tls.rs` in a build without the feature `tls`.

use tonic::transport::Endpoint;

use super::{Pem, Settings};

/// The remedy for an `https` endpoint.
pub(super) const CURE: &str = "use a plaintext `http://` endpoint, or a build with the feature";

/// Always returns `None`.
pub(super) fn certificates(_: &Pem) -> Option<usize> {
    None
}

/// Always returns an error.
pub(super) fn configure(_: Endpoint, _: &Settings) -> Result<Endpoint, String> {
    Err("this build has no TLS (cargo feature `tls`)".to_owned())
}
