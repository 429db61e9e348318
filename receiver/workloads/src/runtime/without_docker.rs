//! Replaces `docker.rs` in a build without the feature `docker`.

use super::{
    failure::{Failure, Reason},
    runtimes::Runtimes,
};
use crate::{ContainerId, Metadata, reader::Endpoint};

/// A client that cannot exist.
pub(super) enum Docker {}

impl Docker {
    /// Always fails.
    pub(super) fn new(_: &Endpoint, _: &Runtimes) -> Result<Self, Failure> {
        Err(Failure::new(Reason::Unsupported, "this build has no client of Docker's API (cargo feature `docker`)"))
    }

    pub(super) async fn container(&self, _: &ContainerId) -> Result<Metadata, Failure> {
        match *self {}
    }
}
