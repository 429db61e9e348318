//! What is said of a workload, by the semantic conventions 1.44.

use super::{CgroupPath, Identity, Metadata, PodMetadata, PodUid, Service};
use crate::telemetry::{Attributes, Resource, host_id, instance_id};

/// The longest text that a workload may say of itself, in bytes: far more than a name takes, and little enough for
/// every export.
pub(super) const LONGEST: usize = 1024;

/// Attributes that say which process, container or pod the sidecar is. Its node and cluster are everybody's.
const OWN: [&str; 5] = ["container.", "k8s.", "process.", "service.", "telemetry."];
const SHARED: [&str; 2] = ["k8s.cluster.", "k8s.node."];

/// The prefix of annotations that say attributes, by the conventions for Kubernetes.
const ANNOTATION: &str = "resource.opentelemetry.io/";
/// Of Docker Compose and those who imitate it, and of podman-compose, which sets both.
const COMPOSE_SERVICE: [&str; 2] = ["com.docker.compose.service", "io.podman.compose.service"];

/// A workload's resource: what the node's says of the host, what the workload is, and which service it belongs to.
///
/// `service.instance.id` is the UUIDv5, in [`INSTANCE_NAMESPACE`](crate::telemetry::INSTANCE_NAMESPACE), of three texts
/// with a NUL between each: the host's id, as [`Resource::node`] picks it; `container`, `pod` or `cgroup`; and the
/// container's id, the pod's uid or the cgroup's path. Containers that are known by a name go by their path, since others
/// may bear it. Of the three only the host's id may contain a NUL, so none reads as another. It is absent where the host
/// has no id.
///
/// The service's name is the process's own; else the pod's, by the conventions' "Specify resource attributes using
/// Kubernetes annotations": an annotation, then the labels `app.kubernetes.io/instance` and `app.kubernetes.io/name`.
/// What follows there are the names of the pod's owners, which only the API server knows: they are left to the collector.
/// Else it is the label of the compose file's service. The pod's namespace and version go with the pod's name alone:
/// another name is unique elsewhere.
#[must_use]
pub fn resource(
    host: &Attributes,
    identity: &Identity,
    path: &CgroupPath,
    metadata: Option<&Metadata>,
    service: Option<&Service>,
) -> Resource {
    let unknown = Metadata::default();
    let metadata = metadata.unwrap_or(&unknown);
    let mut builder = Builder::on(host);
    builder.identity(identity, path, metadata);
    builder.service(service, metadata);
    builder.instance(host, identity, path);
    Resource { attributes: builder.0 }
}

/// The resource of what has no slot of its own: every workload beyond the cap.
#[must_use]
pub fn overflow(host: &Attributes) -> Resource {
    let mut builder = Builder::on(host);
    builder.0.set("otel.metric.overflow", true);
    builder.name_instance(host, "overflow", b"");
    Resource { attributes: builder.0 }
}

struct Builder(Attributes);

impl Builder {
    /// What everything on the host has in common.
    fn on(host: &Attributes) -> Self {
        let begins = |key: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let mut common = Attributes::new();
        for (key, value) in host.iter().filter(|(key, _)| !begins(key, &OWN) || begins(key, &SHARED)) {
            common.set(key.to_owned(), value.clone());
        }
        Self(common)
    }

    /// Sets what is known, and no longer than anybody's name.
    fn text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty() && text.len() <= LONGEST) {
            self.0.set(key, text.to_owned());
        }
    }

    fn identity(&mut self, identity: &Identity, path: &CgroupPath, metadata: &Metadata) {
        match identity {
            Identity::Container { id, runtime, pod } => {
                self.text("container.id", Some(&id.0));
                let named = runtime.filter(|runtime| runtime.identifies_by_name()).map(|_| id.0.as_str());
                self.text("container.name", metadata.name.as_deref().or(named));
                self.text("container.runtime.name", runtime.map(|runtime| runtime.as_str()));
                self.text("container.image.name", metadata.image_name.as_deref());
                if !metadata.image_tags.is_empty() {
                    self.0.set("container.image.tags", metadata.image_tags.clone());
                }
                self.pod(pod.as_ref(), metadata.pod.as_ref());
                self.text("k8s.container.name", metadata.pod.as_ref().and_then(|pod| pod.container.as_deref()));
                return;
            }
            Identity::Pod(uid) => self.pod(Some(uid), metadata.pod.as_ref()),
            // The conventions have no attribute for it.
            Identity::Unit(name) => self.text("undercurrent.workload.unit", Some(name)),
            Identity::Cgroup => {}
        }
        self.0.set("undercurrent.workload.cgroup", path.to_string());
    }

    fn pod(&mut self, uid: Option<&PodUid>, metadata: Option<&PodMetadata>) {
        // Of a static pod the path has the hash of its manifest, and the API server a uid of its own.
        let known = metadata.and_then(|pod| pod.uid.as_deref());
        self.text("k8s.pod.uid", known.or(uid.map(|uid| uid.0.as_str())));
        self.text("k8s.pod.name", metadata.and_then(|pod| pod.name.as_deref()));
        self.text("k8s.namespace.name", metadata.and_then(|pod| pod.namespace.as_deref()));
    }

    fn service(&mut self, own: Option<&Service>, metadata: &Metadata) {
        let own = own.cloned().unwrap_or_default();
        let pod = metadata.pod.as_ref().map(of_pod).unwrap_or_default();
        let compose = COMPOSE_SERVICE.iter().find_map(|label| metadata.labels.get(*label));
        let other = if own.name.is_some() { Service::default() } else { pod.clone() };
        self.text("service.name", own.name.as_deref().or(other.name.as_deref()).or(compose.map(String::as_str)));
        let namespace = other.namespace.as_deref().filter(|_| other.name.is_some());
        self.text("service.namespace", own.namespace.as_deref().or(namespace));
        self.text("service.version", own.version.as_deref().or(other.version.as_deref()));
        let environment = own.environment.as_deref().or(pod.environment.as_deref());
        self.text("deployment.environment.name", environment);
    }

    fn instance(&mut self, host: &Attributes, identity: &Identity, path: &CgroupPath) {
        let (kind, name) = identity.instance(path);
        self.name_instance(host, kind, name);
    }

    fn name_instance(&mut self, host: &Attributes, kind: &str, name: &[u8]) {
        if let Some(host) = host_id(host) {
            self.0.set("service.instance.id", instance_id(&[host.as_bytes(), kind.as_bytes(), name].join(&0)));
        }
    }
}

/// The service that a pod's annotations and well-known labels say it is part of.
fn of_pod(pod: &PodMetadata) -> Service {
    let annotation = |key: &str| pod.annotations.get(&format!("{ANNOTATION}{key}"));
    let label = |key: &str| pod.labels.get(&format!("app.kubernetes.io/{key}"));
    Service {
        name: annotation("service.name").or_else(|| label("instance")).or_else(|| label("name")).cloned(),
        namespace: annotation("service.namespace").or(pod.namespace.as_ref()).cloned(),
        version: annotation("service.version").or_else(|| label("version")).cloned(),
        environment: annotation("deployment.environment.name").cloned(),
    }
}

#[cfg(test)]
mod tests;
