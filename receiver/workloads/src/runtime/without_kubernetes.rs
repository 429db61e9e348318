//! Replaces `kubernetes.rs` in a build without the feature `kubernetes`.

use super::{bounds::Bounded, failure::Failure};
use crate::{
    ContainerId,
    environment::{Environment, value},
    node::Node,
};

/// Access that cannot exist.
pub(super) enum Access {}

impl Access {
    /// Always `None`; logged in a pod.
    pub(super) fn detect(_: &Node, environment: Environment<'_>) -> Option<Self> {
        if value(environment, "KUBERNETES_SERVICE_HOST").is_some() {
            tracing::warn!("this build has no client of the Kubernetes API (cargo feature `kubernetes`)");
        }
        None
    }
}

/// A client that cannot exist.
pub(super) enum Kubernetes {}

impl Kubernetes {
    pub(super) fn watch(access: Access) -> Option<Self> {
        match access {}
    }

    pub(super) async fn container(&self, _: &ContainerId) -> Result<Bounded, Failure> {
        match *self {}
    }
}
