//! Whose a measurement is.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::AbsolutePath;

/// Whose a measurement is: containers, pods, units and other cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workloads {
    /// Whether measurements are told apart by workload. Without it everything stands with the node.
    pub enabled: bool,
    /// How many workloads have figures of their own, first come first served; the others are added up as one. Kernel
    /// memory grows with it: `undercurrent doctor` says by how much.
    #[schemars(range(min = 1, max = 4096))]
    #[serde(deserialize_with = "limit")]
    pub limit: u16,
    /// Sockets of container runtimes that are asked for names, images and labels. What one speaks is read from its file's
    /// name: `containerd` in it, CRI and containerd's API; `cri` in it, CRI; anything else, Docker's API, which is
    /// Podman's too. Without it those in the usual places, on the host where a container may see it, and `DOCKER_HOST`;
    /// an empty list asks none. A socket below `/run/user/UID` must belong to that user, and serves that user's
    /// containers alone. Root must own the other sockets in the usual places; a socket that is named here may have any
    /// owner.
    #[schemars(with = "Vec<AbsolutePath>", extend("examples" = [["/run/containerd/containerd.sock"]]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Vec<AbsolutePath>>,
    /// Whether the Kubernetes API is asked for the pods of this node, where a service account's token is there and
    /// `K8S_NODE_NAME` says which node this is. It answers for containers whose runtime does not.
    pub kubernetes: bool,
}

impl Workloads {
    /// The sockets' paths, if any were named.
    #[must_use]
    pub fn sockets(&self) -> Option<Vec<PathBuf>> {
        self.sockets.as_ref().map(|sockets| sockets.iter().map(|socket| socket.as_path().to_owned()).collect())
    }
}

impl Default for Workloads {
    fn default() -> Self {
        Self { enabled: true, limit: 256, sockets: None, kubernetes: true }
    }
}

/// The most workloads that the table from owners to slots is made for.
const MOST: u16 = 4096;

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = u64::deserialize(deserializer)?;
    let limit = u16::try_from(number).ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| D::Error::custom(format!("`{number}` is no limit of workloads: choose 1 to {MOST}")))
}
