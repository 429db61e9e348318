//! Metadata of a container from its runtime or from Kubernetes.

use std::collections::BTreeMap;

use super::PodUid;

/// The container labels with a service name, from Docker Compose and compatible tools. podman-compose sets both.
pub(super) const COMPOSE_SERVICE: [&str; 2] = ["com.docker.compose.service", "io.podman.compose.service"];

/// The well-known labels of a pod that describe its service.
pub(super) const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
pub(super) const LABEL_NAME: &str = "app.kubernetes.io/name";
pub(super) const LABEL_VERSION: &str = "app.kubernetes.io/version";
const LABELS: [&str; 3] = [LABEL_INSTANCE, LABEL_NAME, LABEL_VERSION];

/// The annotations of a pod that set resource attributes, by the conventions for Kubernetes.
pub(super) const ANNOTATION_NAME: &str = "resource.opentelemetry.io/service.name";
pub(super) const ANNOTATION_NAMESPACE: &str = "resource.opentelemetry.io/service.namespace";
pub(super) const ANNOTATION_VERSION: &str = "resource.opentelemetry.io/service.version";
pub(super) const ANNOTATION_ENVIRONMENT: &str = "resource.opentelemetry.io/deployment.environment.name";
const ANNOTATIONS: [&str; 4] = [ANNOTATION_NAME, ANNOTATION_NAMESPACE, ANNOTATION_VERSION, ANNOTATION_ENVIRONMENT];

/// Metadata of a container beyond the path of its cgroup. Unknown fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The user-chosen name, without a leading slash.
    pub name: Option<String>,
    /// The image name without the tag, for example `docker.io/library/nginx`.
    pub image_name: Option<String>,
    /// The image tags, for example `1.27`.
    pub image_tags: Vec<String>,
    /// The container labels with a service name.
    pub labels: BTreeMap<String, String>,
    /// The pod of the container.
    pub pod: Option<PodMetadata>,
}

/// The pod of a container, and the name of the container in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodMetadata {
    /// The pod uid that the API server uses.
    pub uid: Option<String>,
    /// The pod's name.
    pub name: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The container's name in the pod; absent for the sandbox.
    pub container: Option<String>,
    /// The pod's labels that describe its service.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations that set resource attributes.
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Drops labels and annotations that no resource attribute uses.
    pub(super) fn retain_used(&mut self) {
        retain(&mut self.labels, &COMPOSE_SERVICE);
        if let Some(pod) = &mut self.pod {
            retain(&mut pod.labels, &LABELS);
            retain(&mut pod.annotations, &ANNOTATIONS);
        }
    }
}

fn retain(map: &mut BTreeMap<String, String>, used: &[&str]) {
    map.retain(|key, _| used.contains(&key.as_str()));
}

impl PodMetadata {
    /// Returns true if the metadata describe the pod with the uid in a cgroup path. A static pod has two uids: the path
    /// contains the hash of the manifest, and the API server assigns another uid.
    pub(super) fn is_about(&self, path: &PodUid) -> bool {
        path.is_static() || self.uid.as_ref() == Some(&path.0)
    }
}
