//! Attribution of measurements to workloads.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::AbsolutePath;

/// Attribution of measurements to workloads: containers, pods, systemd units and other cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workloads {
    /// True if measurements are attributed to workloads. Otherwise all measurements belong to the node.
    pub enabled: bool,
    /// Maximum number of workloads with measurements of their own, first come, first served. The remaining workloads
    /// share one slot. Kernel memory grows with the limit; `undercurrent doctor` prints the size.
    #[schemars(range(min = 1, max = 4096))]
    #[serde(deserialize_with = "limit")]
    pub limit: u16,
    /// Sockets of the container runtimes that provide names, images and labels. The file name of a socket selects the
    /// protocol. A name with `containerd` selects CRI and containerd's API, and a name with `cri` selects CRI. Other
    /// names select Docker's API, which Podman provides too. By default, the usual paths and `DOCKER_HOST`, including
    /// the host's paths if a container can see them. An empty list disables runtimes. The user must own a socket below
    /// `/run/user/UID`, which names only containers of that user. Root must own other sockets in the usual paths. A
    /// socket in this list may have any owner.
    #[schemars(with = "Vec<AbsolutePath>", extend("examples" = [["/run/containerd/containerd.sock"]]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Vec<AbsolutePath>>,
    /// True if the Kubernetes API provides the pods of this node for containers that no runtime describes. This
    /// requires a service account token, and the node name in `K8S_NODE_NAME`.
    pub kubernetes: bool,
}

impl Workloads {
    /// Returns the configured socket paths, or `None` for the default.
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

/// The highest number of workloads that the cgroup-to-slot table supports.
const MOST: u16 = 4096;

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = u64::deserialize(deserializer)?;
    let limit = u16::try_from(number).ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| D::Error::custom(format!("`{number}` is no limit of workloads: choose 1 to {MOST}")))
}
