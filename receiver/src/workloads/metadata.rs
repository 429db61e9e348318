//! What a container's runtime, or Kubernetes, says of it.

use std::collections::BTreeMap;

/// What is known of a container beyond its cgroup's path. What is unknown is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The name that people gave it, without a leading slash.
    pub name: Option<String>,
    /// The image's name without its tag, such as `docker.io/library/nginx`.
    pub image_name: Option<String>,
    /// The image's tags, such as `1.27`.
    pub image_tags: Vec<String>,
    /// The container's labels.
    pub labels: BTreeMap<String, String>,
    /// Its place in a pod.
    pub pod: Option<PodMetadata>,
}

/// A container's place in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodMetadata {
    /// The pod's uid, as the API server has it.
    pub uid: Option<String>,
    /// The pod's name.
    pub name: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The container's name in the pod; absent of the sandbox.
    pub container: Option<String>,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
}
